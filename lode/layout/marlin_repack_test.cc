// Marlin tiles where the weights lie: the same bytes as out of place for any scratch and threads.
#include "lode/layout/marlin_repack.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "lode/layout/test_gate_up.h"

namespace lode::layout {
namespace {

using Bytes = std::vector<std::byte>;
using formats::Format;

struct Case {
  std::uint64_t experts, rows, k, groups;
  std::uint32_t bits;
  MarlinForm form;
};

Case random_case(std::mt19937& random) {
  Case made{1 + random() % 3, 64 * (1 + random() % 4),     32 * (1 + random() % 7),
            random() % 9,     random() % 2 == 0 ? 4U : 8U, {}};
  made.form.narrow_activations = random() % 2 == 0;
  made.form.scale_columns = {random() % 2 == 0 ? MarlinScaleMap::kGrouped : MarlinScaleMap::kSingle,
                             random() % 2 == 0};
  for (std::uint8_t& byte : made.form.scale_table) byte = static_cast<std::uint8_t>(random());
  return made;
}

Bytes tiles_out_of_place(const Case& made, const Bytes& rows) {
  const MarlinLayout layout =
      *MarlinLayout::make(made.rows, made.k, {made.bits, made.form.narrow_activations});
  Bytes out(rows.size());
  const std::uint64_t expert = rows.size() / made.experts;
  for (std::uint64_t i = 0; i < made.experts; ++i) {
    marlin_from_rows(layout, {1, made.rows, {}, RowShuffle::kNone},
                     rows_of(std::span(rows).subspan(i * expert, expert), 1, expert / made.rows), 0,
                     std::span(out).subspan(i * expert, expert));
  }
  return out;
}

Bytes scales_out_of_place(const Case& made, const Bytes& rows) {
  Bytes out(rows.size());
  const std::uint64_t expert = rows.size() / made.experts;
  for (std::uint64_t i = 0; i < made.experts && expert > 0; ++i) {
    marlin_scale_bytes({made.form.scale_columns,
                        {1, made.rows, {}, RowShuffle::kNone},
                        rows_of(std::span(rows).subspan(i * expert, expert), 1, made.groups),
                        {made.form.scale_table, {}}},
                       0, std::span(out).subspan(i * expert, expert));
  }
  return out;
}

TEST(MarlinRepack, MakesTheSameBytesInPlaceForAnyScratchAndThreads) {
  std::mt19937 random(23);
  memory::Ledger ledger(std::uint64_t{1} << 32);
  parallel::ThreadPool pool(3);
  for (int i = 0; i < 40; ++i) {
    const Case made = random_case(random);
    const Bytes weight =
        testing::random_bytes(made.experts * made.rows * made.k * made.bits / 8, random);
    const Bytes scale = testing::random_bytes(made.experts * made.rows * made.groups, random);
    MarlinTensors tensors{testing::tensor_of(ledger, {made.experts, made.rows, made.k}, weight,
                                             made.bits == 4 ? Format::kE2m1 : Format::kE4m3),
                          made.groups == 0
                              ? tensor::Tensor()
                              : testing::tensor_of(ledger, {made.experts, made.rows, made.groups},
                                                   scale, Format::kE4m3)};
    const auto plan = plan_marlin_repack(tensors, made.form);
    ASSERT_TRUE(plan) << to_string(plan.error());
    // A row of tiles, or an expert's scales: never an expert.
    EXPECT_LE(plan->scratch_bytes,
              std::max(64 * made.k * made.bits / 8, made.rows * made.groups) + 63);
    Bytes scratch(plan->scratch_bytes * (1 + random() % 4) + random() % 64);
    tensors = run(*plan, std::move(tensors), scratch, random() % 2 == 0 ? &pool : nullptr);
    ASSERT_EQ(testing::bytes_of(tensors.weight), tiles_out_of_place(made, weight));
    if (made.groups == 0) continue;
    ASSERT_EQ(testing::bytes_of(tensors.scale), scales_out_of_place(made, scale));
  }
}

TEST(MarlinRepack, RefusesWhatItCannotTurnWhereItLies) {
  memory::Ledger ledger(std::uint64_t{1} << 32);
  const auto made = [&](const tensor::Shape& shape, const tensor::Shape& scale, Format format) {
    MarlinTensors tensors;
    if (shape.rank() > 0) {
      const std::uint64_t bytes = shape.elements() * formats::info(format).bits / 8;
      tensors.weight = testing::tensor_of(ledger, shape, Bytes(bytes), format);
    }
    if (scale.rank() > 0) {
      tensors.scale = testing::tensor_of(ledger, scale, Bytes(scale.elements()), Format::kE4m3);
    }
    return plan_marlin_repack(tensors, {});
  };
  EXPECT_TRUE(made({2, 64, 32}, {2, 64, 2}, Format::kE2m1));
  for (const auto& plan :
       {made({}, {}, Format::kE2m1), made({64, 32}, {}, Format::kE2m1),
        made({2, 64, 32}, {1, 64, 2}, Format::kE2m1), made({2, 64, 32}, {2, 32, 2}, Format::kE2m1),
        made({2, 64, 32}, {2, 64}, Format::kE2m1)}) {
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, Code::kInvalidSource);
  }
  for (const auto& plan :
       {made({2, 96, 32}, {}, Format::kE2m1), made({2, 64, 24}, {}, Format::kE4m3),
        made({2, 64, 32}, {}, Format::kBf16)}) {
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, Code::kUnsupported);
  }
}

}  // namespace
}  // namespace lode::layout
