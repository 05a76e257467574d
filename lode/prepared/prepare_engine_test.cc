#include <gmock/gmock.h>

#include "lode/prepared/compare.h"
#include "lode/prepared/prepare_test_support.h"
#include "lode/prepared/test_faulty_calls.h"

// Preparations for GPU engines: the same bytes whatever stops and splits the work.

namespace lode::prepared {
namespace {

using loader::EngineChoice;
using targets::Target;

// Rows of tiles and rows of scales that chunks of 2 MiB cut: a start lies within a unit.
constexpr testing_support::SyntheticShape kCut{.storage = ExpertStorage::kNvfp4,
                                               .layers = 1,
                                               .experts = 12,
                                               .hidden = 512,
                                               .intermediate = 448,
                                               .vocab = 64};
constexpr testing_support::SyntheticShape kModel{.storage = ExpertStorage::kNvfp4,
                                                 .layers = 2,
                                                 .experts = 8,
                                                 .hidden = 512,
                                                 .intermediate = 512,
                                                 .vocab = 64};
constexpr Options kSmallUnits{.unit_bytes = 1};

struct Way {
  ExpertStorage from{};
  Target to{};
  std::string online{};  // what BF16 becomes on the way
};

// Every transform there is, by the storage and the target that ask for it.
class EngineTargets : public testing::TestWithParam<Way> {
 protected:
  static testing_support::SyntheticShape of_way(testing_support::SyntheticShape shape) {
    shape.storage = GetParam().from;
    // FP8 is cut into blocks of 128 rows; larger numbers make as many bytes of fewer experts.
    if (shape.storage == ExpertStorage::kFp8Block) shape.intermediate = 384;
    if (shape.storage == ExpertStorage::kFp8Block) shape.experts /= 2;
    if (shape.storage == ExpertStorage::kFp8Tensor) shape.experts /= 2;
    if (shape.storage == ExpertStorage::kBf16) shape.experts /= 4;
    return shape;
  }
  static EngineChoice choice() {
    EngineChoice choice{.target = GetParam().to};
    choice.options.online = GetParam().online;
    return choice;
  }
};

TEST_P(EngineTargets, GoOnToEqualBytesAfterEachWriteThatFails) {
  const FoldersInMemory in_memory;
  PreparedModel model(of_way(kCut));
  model.choose(choice());
  for (std::uint64_t first = 0;; first += 1) {
    FailingWrites calls(first);
    const auto report = model.prepare(kSmallUnits, calls);
    if (!calls.failed()) break;
    ASSERT_FALSE(report) << first;
    EXPECT_EQ(report.error().code, Code::kIo) << to_string(report.error());
    EXPECT_FALSE(prepared::open(model.out(), Verification::kNone)) << first << " is served";
    const auto again = model.prepare(kSmallUnits);
    ASSERT_TRUE(again) << first << " " << to_string(again.error());
    model.expect_whole();
    std::filesystem::remove_all(model.out());
  }
  model.expect_whole();
}

TEST_P(EngineTargets, MakeTheSameBytesWithAnyNumberOfThreads) {
  const FoldersInMemory in_memory;
  PreparedModel model(of_way(kModel));
  model.choose(choice());
  ASSERT_TRUE(model.prepare());
  for (const std::uint32_t threads : {1U, 3U, 16U}) {
    model.choose(choice(), threads);
    model.expect_whole();
  }
}

TEST_P(EngineTargets, HoldNothingWhereAReservationIsRefused) {
  const FoldersInMemory in_memory;
  PreparedModel model(of_way(kModel));
  model.choose(choice());
  for (std::uint64_t refused = 0;; ++refused) {
    memory::FailingLedger ledger(kRoomy, refused);
    const auto preparation = model.open();
    ASSERT_TRUE(preparation);
    const auto report = (*preparation)->run(ledger);
    EXPECT_EQ(ledger.held_bytes(), 0U);
    if (!ledger.refused()) break;
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, Code::kOverBudget);
    EXPECT_FALSE(prepared::open(model.out(), Verification::kNone)) << refused << " is served";
  }
  model.expect_whole();
}

TEST_P(EngineTargets, RecordInTheLedgerWhatTheyPlanned) {
  const FoldersInMemory in_memory;
  PreparedModel model(of_way(kModel));
  model.choose(choice());
  memory::Ledger ledger(kRoomy);
  const auto preparation = model.open();
  ASSERT_TRUE(preparation);
  const auto planned = (*preparation)->expected_stages();
  // Known without a folder, too.
  const auto unseen = plan_new_folder(model.input());
  ASSERT_TRUE(unseen) << to_string(unseen.error());
  EXPECT_EQ(unseen->stages, planned);
  EXPECT_EQ(unseen->output_bytes, (*preparation)->output_bytes());
  ASSERT_TRUE((*preparation)->run(ledger));
  EXPECT_EQ(ledger.stages(), planned);
}

const Way kWays[] = {
    {ExpertStorage::kNvfp4, Target::kMarlin},
    {ExpertStorage::kNvfp4, Target::kFlashinferCutlass},
    {ExpertStorage::kNvfp4, Target::kFlashinferTrtllm},
    {ExpertStorage::kNvfp4, Target::kFlashinferB12x},
    {ExpertStorage::kNvfp4, Target::kVllmCutlass},
    {ExpertStorage::kMxfp4Interleaved, Target::kMarlin},
    {ExpertStorage::kMxfp4Interleaved, Target::kFlashinferCutlass},
    {ExpertStorage::kMxfp4Interleaved, Target::kDeepgemm},
    {ExpertStorage::kFp8Block, Target::kMarlin},
    {ExpertStorage::kFp8Block, Target::kFlashinferTrtllm},
    {ExpertStorage::kFp8Block, Target::kDeepgemm},
    {ExpertStorage::kFp8Tensor, Target::kMarlin},
    {ExpertStorage::kFp8Tensor, Target::kVllmCutlass},
    {ExpertStorage::kBf16, Target::kFlashinferTrtllm},
    {ExpertStorage::kBf16, Target::kVllmCutlass, "fp8-tensor"},
    {ExpertStorage::kBf16, Target::kMarlin, "fp8-channel"},
    {ExpertStorage::kBf16, Target::kDeepgemm, "fp8-block"},
    {ExpertStorage::kBf16, Target::kFlashinferTrtllm, "mxfp8"},
    {ExpertStorage::kBf16, Target::kFlashinferB12x, "mxfp4"},
    {ExpertStorage::kBf16, Target::kFlashinferCutlass, "nvfp4"},
};

std::string name_of(const testing::TestParamInfo<Way>& tested) {
  constexpr std::string_view kStorages[] = {"nvfp4", "", "mxfp4", "fp8", "bf16", "", "fp8tensor"};
  std::string name(targets::name(tested.param.to));
  name += "From" + std::string(kStorages[static_cast<std::size_t>(tested.param.from)]);
  if (!tested.param.online.empty()) name += "By" + tested.param.online;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Prepare, EngineTargets, testing::ValuesIn(kWays), name_of);

TEST(EngineTarget, SaysWhichTensorExpertAndPlaceDiffersFromTheSource) {
  const FoldersInMemory in_memory;
  PreparedModel model(kModel);
  model.choose({.target = Target::kVllmCutlass});
  ASSERT_TRUE(model.prepare());
  const auto checkpoint = prepared::open(model.out(), Verification::kHeader);
  ASSERT_TRUE(checkpoint);
  const loader::EngineBankPlan& bank = checkpoint->index.engine_banks[1];
  EXPECT_EQ(bank.layer, 1U);
  EXPECT_EQ(bank.tensors()[0].name, "w13_weight");
  EXPECT_EQ(bank.tensors()[0].shape, (tensor::Shape{8, 1024, 256}));
  const Section& section = checkpoint->index.sections.back();
  EXPECT_EQ(section.kind, SectionKind::kEngineBank);
  const std::uint64_t at = bank.offsets_bytes[0] + 3 * bank.tensors()[0].expert_bytes + 5 * 256 + 7;
  EXPECT_THAT(what_lies_at(checkpoint->index, section, at),
              testing::HasSubstr("w13_weight of expert 3, at [3, 5, 7]"));
}

TEST(EngineTarget, IsAnotherPreparationThanThatOfTheCpu) {
  const FoldersInMemory in_memory;
  PreparedModel model(kModel);
  ASSERT_TRUE(model.prepare());
  model.choose({.target = Target::kMarlin});
  const auto other = model.open();
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kUsage);
}

TEST(EngineTarget, GivesNoSourceAway) {
  const FoldersInMemory in_memory;
  PreparedModel model(kModel);
  model.choose({.target = Target::kMarlin});
  const auto refused = model.open({.consume = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
}

// Every expert has one that `has` says has; the scale of its matrix serves as it.
void give_input_scales(PreparedModel& model, bool (*has)(std::size_t layer, std::size_t expert)) {
  for (std::size_t layer = 0; layer < model.binding().experts.size(); ++layer) {
    for (std::size_t i = 0; i < model.binding().experts[layer].size(); ++i) {
      loader::ExpertSource& expert = model.binding().experts[layer][i];
      for (loader::MatrixSource* matrix : {&expert.gate, &expert.up, &expert.down}) {
        matrix->input_scale_shard = matrix->matrix_scale_shard;
        matrix->input_scale_offset_bytes = matrix->matrix_scale_offset_bytes;
        matrix->has_input_scale = has(layer, i);
      }
    }
  }
}

Error error_of_vllm(PreparedModel& model) {
  const EngineChoice choice{.target = Target::kVllmCutlass};
  const auto plan = loader::plan_engine(model.binding(), choice, 2);
  if (!plan) return plan.error();
  memory::Ledger ledger(kRoomy);
  loader::ChecksumSink sink;
  const auto engine = loader::make_engine(model.plan());
  const Status made =
      loader::stream_engine(*plan, model.binding(), {ledger, **engine, sink, nullptr, {}, nullptr});
  return made ? Error{.thing = "none"} : made.error();
}

TEST(EngineTarget, NamesExpertsWithoutTheScalesOfActivationsThatItWants) {
  PreparedModel model(kModel);
  give_input_scales(model, [](std::size_t, std::size_t i) { return i != 3 && i != 5; });
  const Error error = error_of_vllm(model);
  EXPECT_EQ(error.code, Code::kInvalidSource);
  EXPECT_THAT(to_string(error), testing::HasSubstr("2 of 8 experts (3, 5)"));
}

TEST(EngineTarget, WantsScalesOfActivationsOfTheFirstExpertWhereAnotherHasThem) {
  PreparedModel model(kModel);
  give_input_scales(model, [](std::size_t, std::size_t i) { return i > 0; });
  const Error error = error_of_vllm(model);
  EXPECT_EQ(error.code, Code::kInvalidSource);
  EXPECT_THAT(to_string(error), testing::HasSubstr("1 of 8 experts (0)"));
}

TEST(EngineTarget, WantsScalesOfActivationsOfEveryLayerWhereOneHasThem) {
  PreparedModel model(kModel);
  give_input_scales(model, [](std::size_t layer, std::size_t) { return layer == 1; });
  const Error error = error_of_vllm(model);
  EXPECT_EQ(error.code, Code::kInvalidSource);
  EXPECT_THAT(to_string(error), testing::HasSubstr("8 of 8 experts"));
  EXPECT_THAT(to_string(error), testing::HasSubstr("layer 0"));
}

}  // namespace
}  // namespace lode::prepared
