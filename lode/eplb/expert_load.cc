#include "lode/eplb/expert_load.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lode/base/check.h"
#include "lode/memory/carver.h"
#include "lode/placement/load_decay.h"

namespace lode::eplb {
namespace {

constexpr std::uint32_t kMost = ~std::uint32_t{0};

struct Tables {
  std::span<std::uint32_t> pass, window;
  std::span<float> sums, totals;
  std::span<std::byte> gathered;
};

Tables carve(memory::Carver& carver, const LoadShape& shape) {
  const std::size_t numbers = shape.layers * shape.experts;
  Tables tables;
  tables.pass = carver.take<std::uint32_t>(numbers);
  tables.window = carver.take<std::uint32_t>(numbers);
  tables.sums = carver.take<float>(numbers);
  tables.totals = carver.take<float>(numbers);
  tables.gathered = carver.take<std::byte>(shape.ranks * shape.experts * sizeof(float));
  return tables;
}

template <class T>
T number_at(std::span<const std::byte> bytes, std::size_t index) {
  T number;
  std::memcpy(&number, bytes.data() + index * sizeof(T), sizeof(T));
  return number;
}

// total[i] = the sum of the ranks' table[i], in rank order; a layer at a time.
template <class Sum, class T, class Total>
Status add_up(comm::Group& group, std::span<const T> table, std::span<std::byte> gathered,
              std::span<Total> total) {
  const std::size_t experts = gathered.size() / sizeof(T) / group.size();
  for (std::size_t at = 0; at < table.size(); at += experts) {
    LODE_TRY_STATUS(group.all_gather(std::as_bytes(table.subspan(at, experts)), gathered));
    for (std::size_t expert = 0; expert < experts; ++expert) {
      Sum sum = 0;
      for (std::size_t rank = 0; rank < group.size(); ++rank)
        sum += number_at<T>(gathered, rank * experts + expert);
      total[at + expert] = static_cast<Total>(sum);
    }
  }
  return {};
}

}  // namespace

std::uint64_t load_bytes(const LoadShape& shape) noexcept {
  memory::Carver carver;
  carve(carver, shape);
  return carver.bytes();
}

Result<ExpertLoad> ExpertLoad::make(memory::Ledger& ledger, const LoadShape& shape, float decay) {
  LODE_TRY(memory::Buffer buffer, memory::make_buffer(ledger, memory::Tag::kMetadata,
                                                      load_bytes(shape), "load of experts"));
  return ExpertLoad(shape, std::move(buffer), decay);
}

ExpertLoad::ExpertLoad(const LoadShape& shape, memory::Buffer buffer, float decay)
    : shape_(shape), buffer_(std::move(buffer)), decay_(decay) {
  memory::Carver carver(buffer_.mutate());
  const Tables tables = carve(carver, shape);
  pass_ = tables.pass;
  window_ = tables.window;
  sums_ = tables.sums;
  totals_ = tables.totals;
  gathered_ = tables.gathered;
}

void ExpertLoad::end_pass(bool counted) noexcept {
  if (counted) {
    for (std::size_t i = 0; i < pass_.size(); ++i)
      window_[i] += std::min(pass_[i], kMost - window_[i]);
    placement::decay_and_add(sums_, pass_, decay_);
    ++window_passes_;
    ++sum_passes_;
  }
  std::ranges::fill(pass_, 0U);
}

void ExpertLoad::begin_window() noexcept {
  std::ranges::fill(window_, 0U);
  window_passes_ = 0;
}

void ExpertLoad::reset() noexcept {
  begin_window();
  std::ranges::fill(pass_, 0U);
  std::ranges::fill(sums_, 0.0F);
  sum_passes_ = 0;
}

Result<std::span<const float>> ExpertLoad::sum_over_ranks(comm::Group& group) {
  LODE_CHECK(group.size() == shape_.ranks, "the ranks that room was made for");
  LODE_TRY_STATUS(add_up<double>(group, std::span<const float>(sums_), gathered_, totals_));
  return std::span<const float>(totals_);
}

Status ExpertLoad::count_over_ranks(comm::Group& group, std::span<std::uint64_t> total) {
  LODE_CHECK(group.size() == shape_.ranks && total.size() == window_.size(),
             "a sum for every count");
  return add_up<std::uint64_t>(group, std::span<const std::uint32_t>(window_), gathered_, total);
}

}  // namespace lode::eplb
