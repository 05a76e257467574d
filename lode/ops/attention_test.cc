#include "lode/ops/attention.h"

#include <gtest/gtest.h>

#include "lode/ops/test_weights.h"

namespace lode::ops {
namespace {

constexpr std::size_t kHeads = 6, kKvHeads = 2, kHeadDim = 24, kTokens = 300;
constexpr std::size_t kWidth = kHeads * kHeadDim, kKvWidth = kKvHeads * kHeadDim;

/// Keys and values of a sequence in a cache of `capacity` slots a head.
class Cache {
 public:
  Cache(std::size_t capacity, KvFormat format) : numbers_(4 * kKvWidth * capacity) {
    kv_.capacity = capacity;
    const std::size_t half = kKvWidth * capacity;
    const std::span<float> floats = std::span(numbers_).first(2 * half);
    codes_.resize(2 * half);
    if (format == KvFormat::kF32) {
      kv_.keys = floats.first(half);
      kv_.values = floats.subspan(half);
    } else {
      kv_.keys_f16 = std::span(codes_).first(half);
      kv_.values_f16 = std::span(codes_).subspan(half);
    }
  }
  const KvLayer& operator*() const { return kv_; }

 private:
  std::vector<float> numbers_;
  std::vector<std::uint16_t> codes_;
  KvLayer kv_;
};

struct Data {
  TestRows q{kTokens, kWidth, Mode::kExact, 1};
  TestRows k{kTokens, kKvWidth, Mode::kExact, 2};
  TestRows v{kTokens, kKvWidth, Mode::kExact, 3};
  std::vector<float> sinks{0.5F, -1.0F, 2.0F, 0.0F, 3.0F, -4.0F};
};

AttentionShape shape_of(std::uint32_t window, std::span<const float> sinks) {
  return {kHeads, kKvHeads, kHeadDim, 0.2F, window, sinks};
}

/// Passes of `chunk` tokens, as a model makes them.
std::vector<float> run(const Data& data, const AttentionShape& shape, const KvLayer& kv,
                       std::size_t threads, std::size_t chunk) {
  const TestCompute compute(threads, Mode::kExact);
  std::vector<float> out;
  for (std::size_t first = 0; first < kTokens; first += chunk) {
    const std::size_t count = std::min(chunk, kTokens - first);
    std::vector<RowPlace> places;
    const TestRows q(count, kWidth, Mode::kExact, 9), y(count, kWidth, Mode::kExact, 9);
    for (std::size_t row = 0; row < count; ++row) {
      const auto position = static_cast<std::uint32_t>(first + row);
      places.push_back({0, position});
      std::copy_n(data.q->row(position).begin(), kWidth, q->row(row).begin());
      store_kv(*compute, kv, position, data.k->row(position), data.v->row(position), kHeadDim);
    }
    attend(*compute, shape, {&kv, 1}, places, *q, *y);
    const std::vector<float> part = y.numbers();
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

/// One head of one token by the formula, in double.
std::vector<double> by_formula(const Data& data, const AttentionShape& shape, std::size_t token,
                               std::size_t head) {
  const std::size_t kv_first = head / (kHeads / kKvHeads) * kHeadDim;
  const auto q = data.q->row(token).subspan(head * kHeadDim, kHeadDim);
  double sum = shape.sinks.empty() ? 0.0 : std::exp(double{shape.sinks[head]});
  std::vector<double> out(kHeadDim);
  for (std::size_t key = 0; key <= token; ++key) {
    if (shape.window_tokens != 0 && token - key >= shape.window_tokens) continue;
    const double logit = double{shape.scale} * dot(q, data.k->row(key).subspan(kv_first, kHeadDim));
    const double weight = std::exp(logit);
    sum += weight;
    for (std::size_t i = 0; i < kHeadDim; ++i) out[i] += weight * data.v->row(key)[kv_first + i];
  }
  for (double& value : out) value /= sum;
  return out;
}

// A logit of magnitude up to L = 0.2 * |q| |k| is off by at most (D + 2) u L, a weight relatively
// by that and 4 u of exp and subtraction; sums of n terms and n / 128 rescalings add (n + 8) u.
// Values are averages, so the error is at most twice that times the largest |v|.
void expect_near_formula(const AttentionShape& shape, const std::vector<float>& got,
                         const Data& data, double extra) {
  const double unit = std::ldexp(1.0, -24);
  for (const std::size_t token : {0U, 1U, 17U, 127U, 128U, 129U, 255U, 299U}) {
    for (std::size_t head = 0; head < kHeads; ++head) {
      const std::vector<double> want = by_formula(data, shape, token, head);
      const double logit = 0.2 * 9.0 * 9.0;  // |N(0,1)^24| below 9
      const double terms = (kHeadDim + 2) * logit + static_cast<double>(token) + 13.0;
      const double bound = 2.0 * 5.0 * unit * terms + extra;
      for (std::size_t i = 0; i < kHeadDim; ++i) {
        ASSERT_NEAR(double{got[token * kWidth + head * kHeadDim + i]}, want[i], bound)
            << token << " " << head << " " << i;
      }
    }
  }
}

TEST(Attention, IsTheFormula) {
  const Data data;
  for (const std::uint32_t window : {0U, 1U, 40U, 130U}) {
    for (const bool sinks : {false, true}) {
      const auto shape =
          shape_of(window, sinks ? std::span<const float>(data.sinks) : std::span<const float>());
      const Cache cache(kTokens, KvFormat::kF32);
      expect_near_formula(shape, run(data, shape, *cache, 1, kTokens), data, 0.0);
    }
  }
}

TEST(Attention, GivesTheSameBitsForAnyThreadsChunksAndRing) {
  const Data data;
  for (const std::uint32_t window : {0U, 40U}) {
    for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16}) {
      const auto shape = shape_of(window, data.sinks);
      const Cache whole(kTokens, format);
      const std::vector<float> want = run(data, shape, *whole, 1, kTokens);
      for (const std::size_t chunk : {1U, 7U, 128U}) {
        const Cache ring(window == 0 ? kTokens : window + chunk - 1, format);
        EXPECT_EQ(run(data, shape, *ring, 3, chunk), want) << window << " " << chunk;
      }
    }
  }
}

// F16 rounds keys and values to 2^-11 relative: a logit moves by 2^-11 L, a weight by as much, the
// value itself by 2^-11 of at most 5.
TEST(Attention, WithF16CacheIsWithinItsRounding) {
  const Data data;
  const auto shape = shape_of(0, {});
  const Cache cache(kTokens, KvFormat::kF16);
  const double half = std::ldexp(1.0, -11);
  expect_near_formula(shape, run(data, shape, *cache, 2, 64), data,
                      half * 5.0 + 2.0 * 5.0 * half * 0.2 * 9.0 * 9.0);
}

TEST(Attention, OfTwoSequencesTogetherEqualsEachAlone) {
  const Data data;
  const auto shape = shape_of(0, {});
  const TestCompute compute(2, Mode::kExact);
  const Cache first(4, KvFormat::kF32), second(4, KvFormat::kF32);
  store_kv(*compute, *first, 0, data.k->row(0), data.v->row(0), kHeadDim);
  store_kv(*compute, *second, 0, data.k->row(1), data.v->row(1), kHeadDim);
  const std::vector<KvLayer> both = {*first, *second};
  const TestRows q(2, kWidth, Mode::kExact, 4), y(2, kWidth, Mode::kExact, 5);
  attend(*compute, shape, both, std::vector<RowPlace>{{0, 0}, {1, 0}}, *q, *y);
  // One key: its value, whatever the query.
  EXPECT_NEAR(y->row(0)[0], data.v->row(0)[0], 1e-6);
  EXPECT_NEAR(y->row(1)[0], data.v->row(1)[0], 1e-6);
}

}  // namespace
}  // namespace lode::ops
