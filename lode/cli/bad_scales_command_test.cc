#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "lode/cli/test_command.h"
#include "tests/support/edited_checkpoint.h"

// Numbers that no producer means, in a small checkpoint, one place at a time: what `lode verify`
// says of the folder, and `lode prepare --target` for each target that takes the format.

namespace lode::cli {
namespace {

using ::testing::HasSubstr;
using testing_support::EditedCheckpoint;

using Bytes = std::vector<std::uint8_t>;
using Names = std::vector<std::string>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Bytes f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  Bytes bytes(sizeof bits);
  std::memcpy(bytes.data(), &bits, sizeof bits);
  return bytes;
}

const Names kNvfp4Targets = {"marlin", "flashinfer-cutlass", "flashinfer-trtllm", "flashinfer-b12x",
                             "vllm-cutlass"};
const Names kFourBitActivations = {"flashinfer-cutlass", "flashinfer-trtllm", "flashinfer-b12x",
                                   "vllm-cutlass"};
const Names kMxfp4Targets = {"marlin",          "flashinfer-cutlass", "flashinfer-trtllm",
                             "flashinfer-b12x", "vllm-cutlass",       "deepgemm"};
const Names kFp8Targets = {"marlin", "flashinfer-cutlass", "flashinfer-trtllm", "vllm-cutlass"};
const std::string kExpert = "model.layers.1.mlp.experts.1.";

// One place that is changed, and what comes of it.
struct Row {
  std::string folder;  // of tests/golden/quantised
  std::string tensor;  // changed from its beginning on; gone where there are no bytes
  Bytes bytes;
  int verify_status = 0;
  std::string verify_says;  // in what it prints
  Names targets;            // that are asked
  int prepare_status = 0;
  std::string prepare_says;
  std::optional<int> strict_status{};  // with --strict, where that is asked
};

void expect_row(const Row& row) {
  EditedCheckpoint edited(LODE_GOLDEN_DIR "/quantised/" + row.folder);
  if (row.bytes.empty()) {
    edited.erase(row.tensor);
  } else {
    std::memcpy(edited.at(row.tensor).bytes.data(), row.bytes.data(), row.bytes.size());
  }
  const std::string folder = edited.write().string();
  const Answer verified = lode({"verify", folder});
  EXPECT_EQ(verified.status, row.verify_status) << verified.out << verified.err;
  EXPECT_THAT(verified.out + verified.err, HasSubstr(row.verify_says));
  for (const std::string& target : row.targets) {
    const std::string out = temp("bad-scales");
    const Answer made = lode({"prepare", folder, out, "--target", target});
    EXPECT_EQ(made.status, row.prepare_status) << target << ": " << made.err;
    EXPECT_THAT(made.err, HasSubstr(row.prepare_says)) << target;
    EXPECT_EQ(std::filesystem::exists(out + "/manifest.json"), made.status == 0);
    std::filesystem::remove_all(out);
    if (!row.strict_status) continue;
    const Answer strict = lode({"prepare", folder, out, "--target", target, "--strict"});
    EXPECT_EQ(strict.status, *row.strict_status) << target << ": " << strict.err;
    std::filesystem::remove_all(out);
  }
}

TEST(BadScales, OfBlocksAreNamedWhereTheyAreNotFinite) {
  const std::string scale = kExpert + "gate_proj.weight_scale";
  const std::string fault = "scale that is not finite, at [0, 0]";
  for (const std::uint8_t code : {std::uint8_t{0x7F}, std::uint8_t{0xFF}}) {
    expect_row({"modelopt_nvfp4",
                scale,
                {code},
                12,
                fault,
                kNvfp4Targets,
                4,
                "block scale of gate, row of blocks 0, column 0"});
  }
  expect_row({"gptoss_mxfp4",
              "model.layers.1.mlp.experts.down_proj_scales",
              {0xFF},
              12,
              "scale that is not finite, at [0, 0, 0]",
              kMxfp4Targets,
              4,
              "block scale of down"});
  for (const Bytes& bf16 : {Bytes{0x80, 0x7F}, Bytes{0xC0, 0x7F}}) {
    expect_row({"ct_fp8_channel",
                scale,
                bf16,
                12,
                fault,
                {"marlin", "vllm-cutlass"},
                4,
                "block scale of gate"});
  }
}

TEST(BadScales, OfBlocksThatAreZeroDenormalOrNegativeAreCountedAndWhatMarlinLosesIsTold) {
  const std::string scale = kExpert + "gate_proj.weight_scale";
  expect_row({"modelopt_nvfp4", scale, {0x00}, 0, "zero_scales", kNvfp4Targets, 0, "prepared"});
  expect_row({"modelopt_nvfp4",
              scale,
              {0x7E, 0x01},
              0,
              "denormal_scales",
              {"marlin"},
              0,
              "flushed_scales: ",
              12});
  expect_row({"modelopt_nvfp4",
              scale,
              {0xB8},
              0,
              "negative_scales 1",
              {"marlin"},
              0,
              "negative_scales: 1 block scales below zero",
              12});
  expect_row(
      {"modelopt_nvfp4", scale, {0xB8}, 0, "negative_scales 1", {"vllm-cutlass"}, 0, "prepared"});
}

TEST(BadScales, OfMatricesAreNamedWhereTheyAreNotFiniteOrNotAboveZero) {
  for (const float value : {kNan, kInfinity, -kInfinity, 0.0F, -0.0F, -1.0F}) {
    const std::string fault = std::isfinite(value) ? "not above zero" : "not finite";
    expect_row({"modelopt_nvfp4", kExpert + "down_proj.weight_scale_2", f32(value), 12, fault,
                kNvfp4Targets, 4, "scale of expert 1, down"});
    expect_row({"modelopt_fp8", kExpert + "up_proj.weight_scale", f32(value), 12, fault,
                kFp8Targets, 4, "scale of expert 1, up"});
  }
  // A divisor of which the reciprocal is infinite.
  expect_row({"ct_nvfp4", kExpert + "up_proj.weight_global_scale", f32(1e-40F), 0, "divisor",
              kNvfp4Targets, 4,
              "scale of expert 1, up: want a finite number above zero, found 1e-40, a divisor "
              "(layer 1, " +
                  kExpert + "up_proj.weight_global_scale in "});
  expect_row({"modelopt_nvfp4", kExpert + "down_proj.weight_scale_2", f32(-2.0F), 12,
              "not above zero", kNvfp4Targets, 4,
              "found -2 (layer 1, " + kExpert + "down_proj.weight_scale_2 in "});
}

TEST(BadScales, OfActivationsAreNamedWhereTheTargetReadsThem) {
  const std::string scale = kExpert + "down_proj.input_scale";
  for (const float value : {kNan, kInfinity, 0.0F, -1.0F, 1e-40F}) {
    const std::string fault =
        std::isfinite(value) ? "not above zero with a finite reciprocal" : "not finite";
    expect_row({"modelopt_nvfp4", scale, f32(value), 12, fault, kFourBitActivations, 4,
                "input scale of expert 1, down"});
    expect_row({"modelopt_nvfp4", scale, f32(value), 12, fault, {"marlin"}, 0, "prepared"});
  }
  expect_row({"modelopt_nvfp4", scale, {}, 0, "no fault", kFourBitActivations, 4, "none for 1 of"});
  for (const std::string expert : {"0", "1"}) {
    const std::string module = "model.layers.1.mlp.experts." + expert + ".up_proj.";
    expect_row({"modelopt_nvfp4",
                module + "input_scale",
                {},
                0,
                "no fault",
                kFourBitActivations,
                4,
                "layer 1, " + module + "weight in "});
  }
  expect_row({"modelopt_nvfp4", scale, {}, 0, "no fault", {"marlin"}, 0, "prepared"});
}

TEST(BadScales, OfTheOtherDialectAreNoted) {
  expect_row({"modelopt_nvfp4", kExpert + "gate_proj.weight_scale_2", f32(3000.0F), 0,
              "layer 1, expert 1, gate: as if a divisor was read", kNvfp4Targets, 0,
              "as if a divisor was read as a multiplier"});
  expect_row({"ct_nvfp4", kExpert + "down_proj.weight_global_scale", f32(3e-4F), 0,
              "layer 1, expert 1, down: as if a divisor was read", kNvfp4Targets, 0,
              "as if a divisor was read as a multiplier"});
}

TEST(BadScales, OfMatricesThatAreDenormalAreNoted) {
  for (const float value : {1e-40F, 0x1.8p-127F}) {
    expect_row({"modelopt_nvfp4",
                kExpert + "down_proj.weight_scale_2",
                f32(value),
                0,
                "denormal: 1 scale of a matrix, which makes weights of next to nothing, the first "
                "of layer 1, expert 1, down",
                {"marlin"},
                0,
                "prepared"});
    expect_row({"modelopt_fp8",
                kExpert + "up_proj.weight_scale",
                f32(value),
                0,
                "the first of layer 1, expert 1, up",
                {},
                0,
                ""});
  }
  expect_row({"modelopt_nvfp4",
              kExpert + "down_proj.weight_scale_2",
              f32(0x1p-126F),
              0,
              "denormal_matrix_scales 0",
              {},
              0,
              ""});
}

TEST(BadScales, OfGateAndUpThatDifferAreNotedAndRefusedByStrictWhereOneServesBoth) {
  expect_row({"modelopt_nvfp4",
              kExpert + "gate_proj.weight_scale_2",
              f32(3.7e-3F),
              0,
              "different scales of the matrix",
              {"vllm-cutlass", "flashinfer-trtllm"},
              0,
              "rounded_scales: ",
              12});
  expect_row({"modelopt_fp8",
              kExpert + "gate_proj.weight_scale",
              f32(3.7e-3F),
              0,
              "different scales of the matrix",
              {"vllm-cutlass", "flashinfer-cutlass"},
              0,
              "rounded_numbers: ",
              12});
}

TEST(BadScales, ThatAreMissingAreNamed) {
  expect_row({"modelopt_nvfp4",
              kExpert + "down_proj.weight_scale",
              {},
              12,
              kExpert + "down_proj.weight",
              {"marlin"},
              4,
              kExpert + "down_proj.weight"});
  expect_row({"modelopt_nvfp4",
              kExpert + "up_proj.weight_scale_2",
              {},
              12,
              kExpert + "up_proj.weight",
              {"vllm-cutlass"},
              4,
              kExpert + "up_proj.weight"});
}

TEST(BadSizes, AreRefusedNamingWhatTheKernelsTake) {
  for (const auto& [target, wanted] :
       {std::pair<std::string, std::string>{"marlin", "a multiple of 64, found 144"},
        {"vllm-cutlass", "a multiple of 128"},
        {"flashinfer-trtllm", "a multiple of 128"},
        {"deepgemm", "a multiple of 128"}}) {
    const Answer made = lode(
        {"prepare", LODE_GOLDEN_DIR "/quantised/block_fp8", temp("bad-sizes"), "--target", target});
    EXPECT_EQ(made.status, 11) << target;
    EXPECT_THAT(made.err, HasSubstr(wanted));
    EXPECT_FALSE(std::filesystem::exists(temp("bad-sizes")));
  }
}

// Found while OUT is being written: the user need not look for the place.
TEST(BadScales, ThatAPreparationMeetsAreNamedByTensorAndFileWithWhatLooksAtAll) {
  const auto refusal = [](const std::string& folder, const std::string& tensor, const Bytes& bytes,
                          const std::vector<std::string>& more) {
    EditedCheckpoint edited(LODE_GOLDEN_DIR "/quantised/" + folder);
    std::memcpy(edited.at(tensor).bytes.data(), bytes.data(), bytes.size());
    const std::string source = edited.write().string();
    std::vector<std::string> words = {"prepare", source, temp("bad-named"), "--target", "marlin"};
    words.insert(words.end(), more.begin(), more.end());
    const Answer made = lode(words);
    std::filesystem::remove_all(temp("bad-named"));
    EXPECT_EQ(made.status, 4) << made.err;
    EXPECT_THAT(made.err, HasSubstr("`lode verify " + source + "` looks at all numbers"));
    return made.err;
  };
  for (const char* const matrix : {"gate_proj", "up_proj", "down_proj"}) {
    const std::string scale = kExpert + matrix + ".weight_scale";
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, {"--export", "safetensors"}}) {
      const std::string said = refusal("modelopt_nvfp4", scale, {0x7F}, more);
      EXPECT_THAT(said, HasSubstr(scale + " in /"));
      EXPECT_THAT(said, HasSubstr(".safetensors"));
    }
  }
  EXPECT_THAT(refusal("modelopt_nvfp4", kExpert + "up_proj.weight_scale_2", f32(kNan), {}),
              HasSubstr("layer 1"));
}

}  // namespace
}  // namespace lode::cli
