#include "lode/loader/execute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "lode/formats/dequantise.h"
#include "lode/layout/unpack.h"
#include "lode/loader/operation_stream.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/faulty_system_calls.h"
#include "tests/support/synthetic_weights.h"

namespace lode::loader {
namespace {

using families::Role;
using testing_support::ExpertStorage;
using testing_support::SyntheticShape;
using testing_support::SyntheticWeights;
using testing_support::TempFolder;

constexpr std::uint64_t kRoomy = 4 * kGiB;

// What the region formulas of binding.h say, number by number, straight from the file.
class Oracle {
 public:
  explicit Oracle(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    bytes_.resize(text.size());
    std::memcpy(bytes_.data(), text.data(), text.size());
  }

  float number(const MatrixSource& source, std::uint64_t row, std::uint64_t k) const {
    const bool e2m1 = source.encoding.element == formats::Format::kE2m1;
    const std::uint64_t bits = formats::info(source.encoding.element).bits;
    const Region& region = source.codes;
    const std::uint64_t unit = e2m1 ? k / 2 : k;
    const std::uint64_t unit_bytes = e2m1 ? 1 : bits / 8;
    const std::uint64_t at = region.order == Order::kRowsFirst
                                 ? row * region.outer_stride_bytes + unit * unit_bytes
                                 : unit * region.outer_stride_bytes + row * region.inner_step_bytes;
    const auto code = std::span(bytes_).subspan(region.offset_bytes + at, unit_bytes);
    const float value = formats::number_at(source.encoding.element, code, e2m1 ? k % 2 : 0);
    return source.encoding.has_scale ? value * multiplier(source, row, k) : value;
  }

  float vector(const VectorSource& source, std::uint64_t i) const {
    return formats::number_at(
        source.format, std::span(bytes_).subspan(source.offset_bytes + i * source.step_bytes), 0);
  }

 private:
  float multiplier(const MatrixSource& source, std::uint64_t row, std::uint64_t k) const {
    const formats::Encoding& encoding = source.encoding;
    const std::uint64_t stored = source.row_origin + row * source.row_step;
    const std::uint64_t s = encoding.block_rows == 0 ? 0 : stored / encoding.block_rows;
    const std::uint64_t c = encoding.block_k == 0 ? 0 : k / encoding.block_k;
    const std::uint64_t width = formats::info(source.stored_scale_format).bits / 8;
    const Region& region = source.scales;
    const std::uint64_t at = region.order == Order::kRowsFirst
                                 ? s * region.outer_stride_bytes + c * width
                                 : c * region.outer_stride_bytes + s * region.inner_step_bytes;
    const float scale = formats::number_at(source.stored_scale_format,
                                           std::span(bytes_).subspan(region.offset_bytes + at), 0);
    if (encoding.tensor_scale == formats::TensorScale::kNone) return scale;
    float whole = 0.0F;
    std::memcpy(&whole, bytes_.data() + source.matrix_scale_offset_bytes, sizeof whole);
    return scale * whole;
  }

  std::vector<std::byte> bytes_;
};

void expect_matrix(const Oracle& oracle, const MatrixSource& source, const tensor::TensorView& view,
                   std::uint32_t matrix) {
  const auto layout =
      *layout::PanelLayout::make(view.meta().encoding, source.rows, source.k,
                                 view.meta().layout == tensor::Layout::kGateUpPanels ? 2 : 1);
  ASSERT_EQ(layout.meta(), view.meta());
  std::vector<float> row(source.k);
  for (std::uint64_t r = 0; r < source.rows; ++r) {
    layout::decode_panel_row(layout, matrix, view.bytes(), r, row);
    for (std::uint64_t k = 0; k < source.k; ++k) {
      ASSERT_EQ(row[k], oracle.number(source, r, k)) << "row " << r << " k " << k;
    }
  }
}

void expect_vector(const Oracle& oracle, const VectorSource& source,
                   const tensor::TensorView& view) {
  if (!source.present) {
    EXPECT_TRUE(view.empty());
    return;
  }
  const auto numbers = tensor::floats(view);
  ASSERT_EQ(numbers.size(), source.count);
  for (std::uint64_t i = 0; i < source.count; ++i) {
    ASSERT_EQ(numbers[i], oracle.vector(source, i)) << i;
  }
}

void expect_expert(const Oracle& oracle, const ExpertSource& source,
                   const layout::ExpertViews& views) {
  expect_matrix(oracle, source.gate, views.gate_up, 0);
  expect_matrix(oracle, source.up, views.gate_up, 1);
  expect_matrix(oracle, source.down, views.down, 0);
  expect_vector(oracle, source.gate_bias, views.gate_bias);
  expect_vector(oracle, source.up_bias, views.up_bias);
  expect_vector(oracle, source.down_bias, views.down_bias);
}

void expect_rows(const Oracle& oracle, const MatrixSource& source, const tensor::TensorView& view) {
  ASSERT_EQ(view.shape(), (tensor::Shape{source.rows, source.k}));
  for (std::uint64_t i = 0; i < source.rows * source.k; ++i) {
    ASSERT_EQ(formats::number_at(view.meta().encoding.element, view.bytes(), i),
              oracle.number(source, i / source.k, i % source.k));
  }
}

void expect_layer(const Oracle& oracle, const RoleSources& sources, const WeightSet& weights,
                  std::uint32_t layer) {
  for (std::size_t i = 0; i < families::kNumRoles; ++i) {
    const auto role = static_cast<Role>(i);
    const tensor::TensorView view = weights.layer_weight(layer, role);
    if (sources.matrices[i].present && role == Role::kMlpUp) {
      expect_matrix(oracle, sources.matrices[i], weights.layer_weight(layer, Role::kMlpGate), 1);
    } else if (sources.matrices[i].present && role == Role::kRouter) {
      EXPECT_EQ(view.meta().encoding, formats::kPlainF32);
      expect_rows(oracle, sources.matrices[i], view);
    } else if (sources.matrices[i].present) {
      expect_matrix(oracle, sources.matrices[i], view, 0);
    } else {
      expect_vector(oracle, sources.vectors[i], view);
    }
  }
}

Result<WeightSet> load(const SyntheticWeights& source, memory::Ledger& ledger,
                       const LoadPolicy& policy) {
  LODE_TRY(const auto index, source.index());
  LODE_TRY(const LoadPlan plan, plan_load(source.binding(), source.spec(), index, policy));
  LODE_TRY(const auto engine, make_engine(plan));
  return execute(plan, source.binding(), ledger, *engine);
}

class EveryStorage : public testing::TestWithParam<ExpertStorage> {};

// Odd sizes: no multiple of 16 rows, of 128 k, of the slot. The smallest slots cut along k as well.
TEST_P(EveryStorage, ReachesItsPlaceNumberByNumber) {
  const TempFolder folder;
  SyntheticShape shape{GetParam(), 3, 3, 416, 224, 100, true};
  const SyntheticWeights source(shape, folder.path() / "model.safetensors");
  const Oracle oracle(source.path());
  for (const std::uint64_t slot_bytes : {64 * kKiB, 2 * kMiB}) {
    memory::Ledger ledger(kRoomy);
    LoadPolicy policy;
    policy.slot_bytes = slot_bytes;
    auto weights = load(source, ledger, policy);
    ASSERT_TRUE(weights) << to_string(weights.error());
    expect_rows(oracle, source.binding().model.matrices[0],
                weights->model_weight(Role::kTokenEmbedding));
    expect_matrix(oracle, source.binding().model.matrices[2],
                  weights->model_weight(Role::kOutputHead), 0);
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      expect_layer(oracle, source.binding().layers[layer], *weights, layer);
      const auto& experts = source.binding().experts[layer];
      ASSERT_EQ(weights->experts(layer).num_experts, experts.size());
      for (std::size_t e = 0; e < experts.size(); ++e) {
        expect_expert(oracle, experts[e], weights->experts(layer).expert(e));
      }
    }
  }
}

TEST_P(EveryStorage, CutsAlongKWhereARowIsLongerThanASlot) {
  const TempFolder folder;
  SyntheticShape shape{GetParam(), 1, 2, 6144, 32, 16, false, 20};
  const SyntheticWeights source(shape, folder.path() / "model.safetensors");
  const Oracle oracle(source.path());
  memory::Ledger ledger(kRoomy);
  LoadPolicy policy;
  policy.slot_bytes = 64 * kKiB;
  auto weights = load(source, ledger, policy);
  ASSERT_TRUE(weights) << to_string(weights.error());
  for (std::size_t e = 0; e < shape.experts; ++e) {
    expect_expert(oracle, source.binding().experts[0][e], weights->experts(0).expert(e));
  }
}

TEST_P(EveryStorage, CutsAlongRowsWhereASuperBlockOfThemAllIsLargerThanASlot) {
  const TempFolder folder;
  const SyntheticShape shape{GetParam(), 1, 2, 256, 2048, 16, true, 20};
  const SyntheticWeights source(shape, folder.path() / "model.safetensors");
  const Oracle oracle(source.path());
  memory::Ledger ledger(kRoomy);
  LoadPolicy policy;
  policy.slot_bytes = 64 * kKiB;
  auto weights = load(source, ledger, policy);
  ASSERT_TRUE(weights) << to_string(weights.error());
  for (std::size_t e = 0; e < shape.experts; ++e) {
    expect_expert(oracle, source.binding().experts[0][e], weights->experts(0).expert(e));
  }
}

TEST_P(EveryStorage, LoadsTheExpertsOfItsSlotsAndNoOthers) {
  const TempFolder folder;
  const SyntheticWeights source({.storage = GetParam(), .bias = true},
                                folder.path() / "model.safetensors");
  const Oracle oracle(source.path());
  const auto index = source.index();
  const ExpertSlots slots = {{3, 0, 3}, {}};
  const LoadPlan plan = *plan_load(source.binding(), source.spec(), *index, {}, slots);
  memory::Ledger ledger(kRoomy);
  auto reader = make_engine(plan);
  ASSERT_TRUE(reader) << to_string(reader.error());
  auto weights = execute(plan, source.binding(), ledger, **reader);
  ASSERT_TRUE(weights) << to_string(weights.error());
  const ExpertBank& bank = weights->experts(0);
  ASSERT_EQ(bank.num_experts, 3U);
  ASSERT_EQ(bank.bytes.size(), 3 * bank.record.record_bytes);
  for (std::size_t record = 0; record < 3; ++record) {
    expect_expert(oracle, source.binding().experts[0][slots[0][record]], bank.expert(record));
  }
  EXPECT_EQ(weights->experts(1).num_experts, 0U);
  EXPECT_EQ(ledger.stages().size(), plan.stages.size() + 1);
  for (std::size_t stage = 0; stage < ledger.stages().size(); ++stage) {
    EXPECT_EQ(ledger.stages()[stage], plan.expected_stages()[stage]);
  }
}

TEST_P(EveryStorage, CountsEveryByteAsFinishedOnceDone) {
  const TempFolder folder;
  const SyntheticWeights source({.storage = GetParam(), .bias = true},
                                folder.path() / "model.safetensors");
  const auto index = source.index();
  ASSERT_TRUE(index);
  const auto plan = plan_load(source.binding(), source.spec(), *index, {});
  ASSERT_TRUE(plan);
  for (std::size_t stage = 0; stage < plan->stages.size(); ++stage) {
    std::uint64_t bytes = 0;
    for (const SlotLoad& load : stage_operations(*plan, source.binding(), stage)) {
      for (const Operation& operation : load.operations) bytes += operation.finished_bytes;
    }
    EXPECT_LE(bytes, plan->stages[stage].mapped_bytes);
    EXPECT_GE(bytes, plan->stages[stage].used_bytes);
  }
  EXPECT_LT(plan->padding_bytes(), plan->weight_bytes());
}

INSTANTIATE_TEST_SUITE_P(Loader, EveryStorage,
                         testing::Values(ExpertStorage::kNvfp4, ExpertStorage::kNvfp4Transposed,
                                         ExpertStorage::kMxfp4Interleaved, ExpertStorage::kFp8Block,
                                         ExpertStorage::kBf16, ExpertStorage::kBf16Transposed));

class OneModel : public testing::Test {
 protected:
  OneModel() : source_({.storage = ExpertStorage::kNvfp4}, folder_.path() / "model.safetensors") {}

  // Overwrites bytes of the shard before it is opened.
  void poke(std::uint64_t offset, std::string_view bytes) {
    std::fstream file(source_.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  Error error_of_load(const LoadPolicy& policy = {}) {
    memory::Ledger ledger(kRoomy);
    auto weights = load(source_, ledger, policy);
    EXPECT_FALSE(weights);
    EXPECT_EQ(ledger.held_bytes(), 0U);
    return weights ? Error{} : weights.error();
  }

  TempFolder folder_;
  SyntheticWeights source_;
};

TEST_F(OneModel, WithABadBlockScaleIsRefusedByName) {
  const MatrixSource& up = source_.binding().experts[1][3].up;
  poke(up.scales.offset_bytes + 5 * up.scales.outer_stride_bytes + 2, "\x7F");
  const Error error = error_of_load();
  EXPECT_EQ(error.code, Code::kInvalidSource);
  EXPECT_THAT(to_string(error), testing::HasSubstr("expert_up of expert 3"));
  EXPECT_THAT(to_string(error), testing::HasSubstr("row 5, k from 32 on"));
  EXPECT_THAT(to_string(error), testing::HasSubstr("layer 1"));
  EXPECT_THAT(to_string(error), testing::HasSubstr("model.safetensors"));
}

// checkpoints_models.md 2.3: the sign counts, and whoever loads is told of it. 0xB8 is -1.
TEST_F(OneModel, WithANegativeBlockScaleIsTakenAndTold) {
  const MatrixSource& up = source_.binding().experts[1][3].up;
  for (const bool negative : {false, true}) {
    if (negative) poke(up.scales.offset_bytes + 5 * up.scales.outer_stride_bytes + 2, "\xB8");
    const Oracle oracle(source_.path());
    memory::Ledger ledger(kRoomy);
    Progress progress;
    const auto plan = *plan_load(source_.binding(), source_.spec(), *source_.index(), {});
    const auto engine = *make_engine(plan);
    const auto weights = execute(plan, source_.binding(), ledger, *engine, &progress);
    ASSERT_TRUE(weights) << to_string(weights.error());
    EXPECT_EQ(progress.negative_scales.load(), negative);
    expect_expert(oracle, source_.binding().experts[1][3], weights->experts(1).expert(3));
  }
}

TEST_F(OneModel, WithABadMatrixScaleIsRefusedByName) {
  const MatrixSource& down = source_.binding().experts[0][2].down;
  const std::string_view bad[] = {{"\0\0\0\0", 4},           // zero
                                  {"\x00\x00\x80\xBF", 4},   // -1
                                  {"\x00\x00\x80\x7F", 4},   // infinite
                                  {"\x00\x00\xC0\x7F", 4}};  // NaN
  for (const std::string_view bytes : bad) {
    poke(down.matrix_scale_offset_bytes, bytes);
    const Error error = error_of_load();
    EXPECT_EQ(error.code, Code::kInvalidSource);
    EXPECT_THAT(to_string(error), testing::HasSubstr("expert_down of expert 2"));
  }
}

TEST_F(OneModel, ThatIsCancelledHoldsNothing) {
  const auto plan = plan_load(source_.binding(), source_.spec(), *source_.index(), {});
  ASSERT_TRUE(plan);
  auto engine = make_engine(*plan);
  ASSERT_TRUE(engine);
  memory::Ledger ledger(kRoomy);
  Progress progress;
  progress.cancel = true;
  const auto weights = execute(*plan, source_.binding(), ledger, **engine, &progress);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, Code::kInterrupted);
  EXPECT_EQ(ledger.held_bytes(), 0U);
}

TEST_F(OneModel, ThatIsCutShortIsRefused) {
  const auto plan = plan_load(source_.binding(), source_.spec(), *source_.index(), {});
  ASSERT_TRUE(plan);
  auto engine = make_engine(*plan);
  ASSERT_TRUE(engine);
  std::filesystem::resize_file(source_.path(), std::filesystem::file_size(source_.path()) / 2);
  memory::Ledger ledger(kRoomy);
  const auto weights = execute(*plan, source_.binding(), ledger, **engine);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, Code::kSourceChanged);
  EXPECT_EQ(ledger.held_bytes(), 0U);
}

TEST_F(OneModel, IsTheSameForAnyThreadsAndSlots) {
  memory::Ledger ledger(kRoomy);
  const auto first = load(source_, ledger, {});
  ASSERT_TRUE(first);
  for (const std::uint32_t workers : {1U, 4U}) {
    LoadPolicy policy{.workers = workers, .readers = 3, .num_slots = 3, .slot_bytes = 100 * kKiB};
    const auto other = load(source_, ledger, policy);
    ASSERT_TRUE(other);
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
      EXPECT_TRUE(std::ranges::equal(first->experts(layer).bytes, other->experts(layer).bytes));
    }
  }
}

constexpr io::IoKind kEngines[] = {io::IoKind::kUring, io::IoKind::kThreads, io::IoKind::kBuffered};

// Whatever reads, and however badly: short counts, interruptions and refusals in between.
TEST_F(OneModel, IsTheSameForEveryEngine) {
  using Call = testing_support::FaultySystemCalls::Call;
  memory::Ledger ledger(kRoomy);
  const auto first = load(source_, ledger, {});
  ASSERT_TRUE(first);
  const auto plan = *plan_load(source_.binding(), source_.spec(), *source_.index(), {});
  for (const io::IoKind kind : kEngines) {
    for (const std::uint64_t most_bytes : {~0ULL, 9000ULL}) {
      testing_support::FaultySystemCalls calls;
      for (const Call call : {Call::kRead, Call::kUringRead}) {
        calls.add({.call = call, .times = ~0ULL, .most_bytes = most_bytes});
        calls.add({.call = call, .first = 5, .times = 9, .answer = -EINTR});
        if (kind != io::IoKind::kBuffered) calls.add({.call = call, .answer = -EINVAL});
      }
      const auto engine = io::make_read_engine(plan.sources, {.kind = kind}, calls);
      ASSERT_TRUE(engine) << to_string(engine.error());
      const auto other = execute(plan, source_.binding(), ledger, **engine);
      ASSERT_TRUE(other) << to_string(other.error());
      for (std::uint32_t layer = 0; layer < 2; ++layer) {
        EXPECT_TRUE(std::ranges::equal(first->experts(layer).bytes, other->experts(layer).bytes));
      }
    }
  }
}

TEST_F(OneModel, ThatCannotBeReadIsAnErrorOfItsFileForEveryEngine) {
  using Call = testing_support::FaultySystemCalls::Call;
  const auto plan = *plan_load(source_.binding(), source_.spec(), *source_.index(), {});
  for (const io::IoKind kind : kEngines) {
    const Call call = kind == io::IoKind::kUring ? Call::kUringRead : Call::kRead;
    testing_support::FaultySystemCalls calls({{.call = call, .first = 4, .answer = -EIO}});
    const auto engine = io::make_read_engine(plan.sources, {.kind = kind}, calls);
    ASSERT_TRUE(engine) << to_string(engine.error());
    memory::Ledger ledger(kRoomy);
    const auto weights = execute(plan, source_.binding(), ledger, **engine);
    ASSERT_FALSE(weights);
    EXPECT_EQ(weights.error().code, Code::kIo);
    EXPECT_THAT(to_string(weights.error()), testing::HasSubstr("model.safetensors"));
    EXPECT_EQ(ledger.held_bytes(), 0U);
  }
}

TEST_F(OneModel, ThatIsWrittenMeanwhileIsRefusedByEveryEngine) {
  for (const io::IoKind kind : kEngines) {
    const auto plan = *plan_load(source_.binding(), source_.spec(), *source_.index(), {.io = kind});
    const auto engine = *make_engine(plan);
    poke(source_.binding().experts[0][0].down.codes.offset_bytes, "x");
    memory::Ledger ledger(kRoomy);
    const auto weights = execute(plan, source_.binding(), ledger, *engine);
    ASSERT_FALSE(weights);
    EXPECT_EQ(weights.error().code, Code::kSourceChanged);
    EXPECT_EQ(ledger.held_bytes(), 0U);
  }
}

TEST_F(OneModel, MakesInt8OfItsDenseMatricesWhenAsked) {
  const Oracle oracle(source_.path());
  memory::Ledger ledger(kRoomy);
  LoadPolicy policy;
  policy.dense = DenseFormat::kInt8;
  const auto weights = load(source_, ledger, policy);
  ASSERT_TRUE(weights);
  EXPECT_EQ(weights->model_weight(Role::kTokenEmbedding).meta().encoding, formats::kPlainBf16);
  const tensor::TensorView query = weights->layer_weight(1, Role::kQuery);
  EXPECT_EQ(query.meta().encoding, formats::kInt8Row128);
  const MatrixSource& source = source_.binding().layers[1].matrices[4];
  const auto layout = *layout::PanelLayout::make(formats::kInt8Row128, source.rows, source.k);
  std::vector<float> row(source.k);
  for (std::uint64_t r = 0; r < source.rows; ++r) {
    layout::decode_panel_row(layout, 0, query.bytes(), r, row);
    for (std::uint64_t k = 0; k < source.k; ++k) {
      // numbers are below 2: half a step of 2/127, and the rounding of one float product
      ASSERT_NEAR(row[k], oracle.number(source, r, k), 1.0 / 127 + 0x1p-21);
    }
  }
}

TEST_F(OneModel, RefusesPoliciesWithoutThreadsOrRoom) {
  EXPECT_EQ(error_of_load({.workers = 0}).code, Code::kUsage);
  EXPECT_EQ(error_of_load({.readers = 0}).code, Code::kUsage);
  EXPECT_EQ(error_of_load({.num_slots = 0}).code, Code::kUsage);
  EXPECT_EQ(error_of_load({.slot_bytes = 1000}).code, Code::kUsage);
}

TEST_F(OneModel, WithExpertsOfTwoEncodingsIsRefusedByName) {
  source_.binding().experts[1][2].gate.encoding = formats::kNvfp4Divisor;
  const Error error = error_of_load();
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_THAT(to_string(error), testing::HasSubstr("layer 1"));
  EXPECT_THAT(to_string(error), testing::HasSubstr("expert 2"));
}

TEST_F(OneModel, UsesPanelsForAnEmbeddingThatIsTheHeadToo) {
  source_.binding().model.matrices[static_cast<std::size_t>(Role::kOutputHead)] = {};
  memory::Ledger ledger(kRoomy);
  const auto weights = load(source_, ledger, {});
  ASSERT_TRUE(weights);
  EXPECT_TRUE(weights->model_weight(Role::kOutputHead).empty());
  expect_matrix(Oracle(source_.path()), source_.binding().model.matrices[0],
                weights->model_weight(Role::kTokenEmbedding), 0);
}

}  // namespace
}  // namespace lode::loader
