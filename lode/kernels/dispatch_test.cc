#include "lode/kernels/dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "lode/kernels/test_panels.h"

namespace lode::kernels {
namespace {

using testing::HasSubstr;

constexpr CpuWords kEverything{.leaf1_ecx = ~0u, .leaf7_ebx = ~0u, .leaf7_ecx = ~0u, .xcr0 = ~0ull};

TEST(Cpu, WithEverythingRunsAllThreeTables) { EXPECT_EQ(count_available(kEverything), 3u); }

TEST(Cpu, WithNothingRunsScalarOnly) { EXPECT_EQ(count_available({}), 1u); }

TEST(Cpu, LackingAnyPartOfAvx512RunsAvx2) {
  for (const unsigned bit : {16u, 17u, 30u, 31u}) {  // F, DQ, BW, VL: leaf 7 EBX
    CpuWords cpu = kEverything;
    cpu.leaf7_ebx &= ~(1u << bit);
    EXPECT_EQ(count_available(cpu), 2u) << "EBX bit " << bit;
  }
  for (const unsigned bit : {1u, 11u}) {  // VBMI, VNNI: leaf 7 ECX
    CpuWords cpu = kEverything;
    cpu.leaf7_ecx &= ~(1u << bit);
    EXPECT_EQ(count_available(cpu), 2u) << "ECX bit " << bit;
  }
}

TEST(Cpu, LackingAnyPartOfAvx2RunsScalar) {
  for (const unsigned bit : {12u, 27u, 28u, 29u}) {  // FMA, OSXSAVE, AVX, F16C: leaf 1 ECX
    CpuWords cpu = kEverything;
    cpu.leaf1_ecx &= ~(1u << bit);
    EXPECT_EQ(count_available(cpu), 1u) << "ECX bit " << bit;
  }
  CpuWords cpu = kEverything;
  cpu.leaf7_ebx &= ~(1u << 5);
  EXPECT_EQ(count_available(cpu), 1u);
}

TEST(Cpu, WhoseSystemDoesNotSaveTheRegistersDoesNotUseThem) {
  CpuWords cpu = kEverything;
  cpu.xcr0 = 0x7;  // x87, SSE, AVX: no zmm, no masks
  EXPECT_EQ(count_available(cpu), 2u);
  cpu.xcr0 = 0x3;
  EXPECT_EQ(count_available(cpu), 1u);
}

TEST(Dispatch, ListsScalarFirstAndNamesEachTable) {
  constexpr const char* kNames[] = {"scalar", "avx2", "avx512"};
  ASSERT_GE(available().size(), 1u);
  for (std::size_t i = 0; i < available().size(); ++i) EXPECT_EQ(available()[i].isa, kNames[i]);
}

TEST(Dispatch, LeavesNoEntryEmpty) {
  for (const KernelTable& table : available()) {
    for (std::size_t kind = 0; kind < kNumPanelKinds; ++kind) {
      EXPECT_NE(table.exact_dot[kind], nullptr);
      EXPECT_NE(table.fast_dot[kind], nullptr);
    }
    EXPECT_TRUE(table.pack_activation && table.decode_row && table.dot && table.add_scaled &&
                table.dot_f16 && table.add_scaled_f16 && table.to_f16 && table.rms_norm);
  }
}

class ActiveTable : public testing::Test {
 protected:
  void SetUp() override {
    const char* isa = std::getenv("LODE_ISA");
    had_ = isa != nullptr;
    if (had_) before_ = isa;
  }
  void TearDown() override {
    EXPECT_TRUE(force(""));
    if (had_) {
      setenv("LODE_ISA", before_.c_str(), 1);
    } else {
      unsetenv("LODE_ISA");
    }
  }

 private:
  bool had_ = false;
  std::string before_;
};

TEST_F(ActiveTable, IsTheBestWhereNobodyChose) {
  unsetenv("LODE_ISA");
  EXPECT_EQ((*active())->isa, available().back().isa);
  setenv("LODE_ISA", "", 1);
  EXPECT_EQ((*active())->isa, available().back().isa);
}

TEST_F(ActiveTable, IsTheOneThatTheEnvironmentNames) {
  for (const KernelTable& table : available()) {
    setenv("LODE_ISA", std::string(table.isa).c_str(), 1);
    EXPECT_EQ(*active(), &table);
  }
}

TEST_F(ActiveTable, RefusesAnUnknownNameInTheEnvironmentAndListsTheChoices) {
  setenv("LODE_ISA", "sse9", 1);
  const auto table = active();
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, Code::kUnsupported);
  EXPECT_THAT(to_string(table.error()), HasSubstr("\"sse9\""));
  EXPECT_THAT(to_string(table.error()), HasSubstr("LODE_ISA"));
  for (const KernelTable& choice : available()) {
    EXPECT_THAT(to_string(table.error()), HasSubstr(std::string(choice.isa)));
  }
}

TEST_F(ActiveTable, IsTheForcedOneWhateverTheEnvironmentSays) {
  setenv("LODE_ISA", std::string(available().back().isa).c_str(), 1);
  ASSERT_TRUE(force("scalar"));
  EXPECT_EQ((*active())->isa, "scalar");
  ASSERT_TRUE(force(""));
  EXPECT_EQ((*active())->isa, available().back().isa);
}

TEST_F(ActiveTable, IsThePlainestForWorkThatCannotFailWhereTheNameIsUnknown) {
  setenv("LODE_ISA", "sse9", 1);
  EXPECT_EQ(active_or_plainest().isa, "scalar");
  unsetenv("LODE_ISA");
  EXPECT_EQ(&active_or_plainest(), *active());
}

TEST_F(ActiveTable, StaysAsItWasWhenForcingFails) {
  ASSERT_TRUE(force("scalar"));
  const Status status = force("avx1024");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kUnsupported);
  EXPECT_EQ((*active())->isa, "scalar");
}

TEST(Choice, ThatThisMachineLacksIsRefusedThoughWeKnowIt) {
  const auto table = choose(available().first(1), "avx512", "force");
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().wanted, "one of scalar");
}

TEST(PanelShape, IsNothingForWhatNoKernelReads) {
  using formats::Encoding;
  using formats::Format;
  EXPECT_FALSE(panel_shape(Encoding{Format::kE2m1, Format::kE8m0, 1, 16, true}));
  EXPECT_FALSE(panel_shape(Encoding{Format::kE2m1, Format::kE4m3, 1, 32, true}));
  EXPECT_FALSE(panel_shape(Encoding{Format::kE2m1, Format::kE8m0, 1, 128, true}));
  EXPECT_FALSE(panel_shape(Encoding{Format::kE2m1, Format::kE8m0, 16, 32, true}));
  EXPECT_FALSE(panel_shape(Encoding{Format::kI8, Format::kF32, 1, 16, true}));
  EXPECT_FALSE(panel_shape(Encoding{Format::kI8, Format::kF32, 1, 96, true}));
  EXPECT_FALSE(panel_shape(formats::kMxfp8));
  EXPECT_FALSE(panel_shape(Encoding{Format::kBf16, Format::kF32, 1, 128, true}));
  EXPECT_FALSE(panel_shape(Encoding{.element = Format::kF64}));
}

TEST(PanelShape, OfEveryKindIsWhatTheTestsDraw) {
  EXPECT_EQ(panel_shape(formats::kPlainF32), shape_of(PanelKind::kF32));
  EXPECT_EQ(panel_shape(formats::kPlainF16), shape_of(PanelKind::kF16));
  EXPECT_EQ(panel_shape(formats::kPlainBf16), shape_of(PanelKind::kBf16));
  EXPECT_EQ(panel_shape(formats::kFp8Block128), shape_of(PanelKind::kE4m3));
  EXPECT_EQ(panel_shape(formats::kFp8Channel), shape_of(PanelKind::kE4m3));
  EXPECT_EQ(panel_shape(formats::kInt8Row128), shape_of(PanelKind::kI8));
  EXPECT_EQ(panel_shape(formats::kMxfp4), shape_of(PanelKind::kMxfp4));
  EXPECT_EQ(panel_shape(formats::kNvfp4Divisor), shape_of(PanelKind::kNvfp4));
}

TEST(PanelShape, CountsTheBytesOfThePicture) {
  EXPECT_EQ(shape_of(PanelKind::kMxfp4).panel_bytes(2048), 16 * 17 * 64u);
  EXPECT_EQ(shape_of(PanelKind::kNvfp4).panel_bytes(2048), 16 * 18 * 64u);
  EXPECT_EQ(shape_of(PanelKind::kMxfp4).panel_bytes(2880), (22 * 17 + 8 + 1) * 64u);
  EXPECT_EQ(shape_of(PanelKind::kE4m3).panel_bytes(256), 2 * 33 * 64u);
  EXPECT_EQ(shape_of(PanelKind::kBf16).panel_bytes(37), 19 * 64u);
}

}  // namespace
}  // namespace lode::kernels
