#include "lode/loader/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "lode/formats/dequantise.h"
#include "lode/loader/execute.h"
#include "lode/loader/number_scan.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/synthetic_weights.h"

namespace lode::loader {
namespace {

using formats::Format;
using ::testing::HasSubstr;
using testing_support::ExpertStorage;
using testing_support::SyntheticShape;
using testing_support::SyntheticWeights;
using testing_support::TempFolder;

constexpr Format kWithFaults[] = {Format::kF32,  Format::kF16,  Format::kBf16,
                                  Format::kE4m3, Format::kE5m2, Format::kE8m0};

// Every code of the 8-bit and 16-bit formats, and of f32 every code of the upper half.
TEST(NumberScan, SeesWhatIsNotFiniteAsTheFormatSaysCodeByCode) {
  for (const Format format : kWithFaults) {
    const std::size_t width = formats::info(format).bits / 8;
    const std::uint32_t codes = width == 1 ? 256 : 65536;
    for (std::uint32_t code = 0; code < codes; ++code) {
      for (const std::size_t place : {std::size_t{0}, std::size_t{5}, std::size_t{8}}) {
        std::vector<std::byte> bytes(9 * width);
        const std::uint32_t bits = width == 4 ? code << 16 : code;
        std::memcpy(bytes.data() + place * width, &bits, width);
        NumberCounts counts;
        count_non_finite(format, bytes, 100, counts);
        const bool bad = !std::isfinite(formats::number_at(format, bytes, place));
        ASSERT_EQ(counts.non_finite, bad ? 1U : 0U) << formats::info(format).name << " " << code;
        if (bad) {
          ASSERT_EQ(counts.first_non_finite, 100 + place);
        }
      }
    }
  }
}

TEST(NumberScan, CountsZerosDenormalsAndNegativeNumbers) {
  const std::vector<std::byte> e4m3 = {std::byte{0x00}, std::byte{0x01}, std::byte{0x07},
                                       std::byte{0x08}, std::byte{0x88}, std::byte{0x7F}};
  NumberCounts counts;
  count_numbers(Format::kE4m3, e4m3, 0, counts);
  EXPECT_EQ(counts.zero, 1U);
  EXPECT_EQ(counts.denormal, 2U);
  EXPECT_EQ(counts.negative, 1U);
  EXPECT_EQ(counts.non_finite, 1U);
  EXPECT_EQ(counts.first_non_finite, 5U);
  EXPECT_EQ(counts.not_positive, 2U);
  EXPECT_EQ(counts.first_not_positive, 0U);
}

// The index outlives what names tensors in it.
struct Scanned {
  Result<ScanReport> report;
  checkpoint::TensorIndex index;
};

Scanned scan_file(const SyntheticWeights& source, memory::Ledger& ledger,
                  Progress* progress = nullptr) {
  auto index = source.index();
  LODE_CHECK(index, "a synthetic shard that cannot be opened");
  const auto plan = plan_load(source.binding(), source.spec(), *index, {});
  const auto engine = make_engine(*plan);
  auto report = scan(source.binding(), *index, **engine, ledger, progress);
  return {std::move(report), *std::move(index)};
}

void overwrite(const SyntheticWeights& source, std::uint64_t offset,
               std::span<const std::byte> bytes) {
  std::fstream file(source.path(), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(static_cast<const char*>(static_cast<const void*>(bytes.data())),
             static_cast<std::streamsize>(bytes.size()));
}

template <class T>
void overwrite(const SyntheticWeights& source, std::uint64_t offset, T value) {
  overwrite(source, offset, std::as_bytes(std::span(&value, 1)));
}

class EveryStorageScan : public ::testing::TestWithParam<ExpertStorage> {
 protected:
  SyntheticShape shape() const { return {GetParam(), 2, 4, 256, 192, 512, true}; }
};

TEST_P(EveryStorageScan, FindsNothingInLegalWeightsAndReadsAllOfThem) {
  const TempFolder folder;
  const SyntheticWeights source(shape(), folder.path() / "model.safetensors");
  memory::Ledger ledger(kGiB);
  Progress progress;
  const Scanned scanned = scan_file(source, ledger, &progress);
  ASSERT_TRUE(scanned.report) << to_string(scanned.report.error());
  EXPECT_TRUE(scanned.report->faults.empty())
      << scanned.report->faults.front().tensor << ": " << scanned.report->faults.front().what;
  EXPECT_EQ(scanned.report->num_bytes, scanned.index.tensor_bytes());
  EXPECT_EQ(scanned.report->num_tensors, scanned.index.tensors().size());
  EXPECT_EQ(progress.finished_bytes.load(), scanned.index.tensor_bytes());
  EXPECT_EQ(ledger.held_bytes(), 0U);
}

TEST_P(EveryStorageScan, NamesABadScaleOfAnExpert) {
  const TempFolder folder;
  const SyntheticWeights source(shape(), folder.path() / "model.safetensors");
  const MatrixSource& down = source.binding().experts[1][2].down;
  if (!down.encoding.has_scale) GTEST_SKIP() << "no scales";
  const bool wide = formats::info(down.stored_scale_format).bits == 16;
  if (wide) {
    overwrite(source, down.scales.offset_bytes, std::uint16_t{0x7F80});
  } else {
    overwrite(source, down.scales.offset_bytes,
              static_cast<std::uint8_t>(down.stored_scale_format == Format::kE8m0 ? 0xFF : 0x7F));
  }
  memory::Ledger ledger(kGiB);
  const Scanned scanned = scan_file(source, ledger);
  ASSERT_TRUE(scanned.report);
  ASSERT_EQ(scanned.report->faults.size(), 1U);
  EXPECT_THAT(scanned.report->faults[0].what, HasSubstr("1 scale that is not finite"));
  EXPECT_THAT(scanned.report->faults[0].where, HasSubstr("model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Scan, EveryStorageScan,
                         ::testing::Values(ExpertStorage::kNvfp4, ExpertStorage::kNvfp4Transposed,
                                           ExpertStorage::kMxfp4Interleaved,
                                           ExpertStorage::kFp8Block, ExpertStorage::kBf16,
                                           ExpertStorage::kBf16Transposed));

TEST(Scan, NamesEveryFaultWithItsPlaceAndNotesPairsThatDiffer) {
  const TempFolder folder;
  const SyntheticShape shape{ExpertStorage::kNvfp4, 2, 4, 256, 192, 512, false};
  const SyntheticWeights source(shape, folder.path() / "model.safetensors");
  const auto& experts = source.binding().experts;
  const VectorSource* norm = nullptr;
  for (const VectorSource& vector : source.binding().layers[1].vectors) {
    if (vector.present && norm == nullptr) norm = &vector;
  }
  ASSERT_NE(norm, nullptr);
  overwrite(source, norm->offset_bytes + 3 * 2, std::uint16_t{0x7FC0});  // NaN, BF16
  overwrite(source, source.binding().model.matrices[0].codes.offset_bytes + 2 * (2 * 256 + 7),
            std::uint16_t{0xFF80});  // -infinity; a synthetic tensor is one row
  overwrite(source, experts[0][1].down.matrix_scale_offset_bytes, -1.0F);
  overwrite(source, experts[1][3].down.matrix_scale_offset_bytes,
            std::numeric_limits<float>::infinity());
  overwrite(source, experts[1][2].gate.matrix_scale_offset_bytes, 3.5F);
  memory::Ledger ledger(kGiB);
  const Scanned scanned = scan_file(source, ledger);
  ASSERT_TRUE(scanned.report);
  std::string all;
  for (const ScanFault& fault : scanned.report->faults)
    all += fault.tensor + ": " + fault.what + "\n";
  EXPECT_EQ(scanned.report->faults.size(), 4U) << all;
  EXPECT_THAT(all, HasSubstr("1 number that is not finite, at [3]"));
  EXPECT_THAT(all, HasSubstr("1 number that is not finite, at [519]"));
  EXPECT_THAT(all, HasSubstr("not above zero"));
  EXPECT_THAT(all, HasSubstr("scale that is not finite"));
  EXPECT_GE(scanned.report->unequal_pairs, 1U);
  EXPECT_NE(scanned.report->first_unequal_pair, "");
}

TEST(Scan, StopsWhereTheProgressIsToldAndHoldsNothing) {
  const TempFolder folder;
  const SyntheticWeights source({}, folder.path() / "model.safetensors");
  memory::Ledger ledger(kGiB);
  Progress progress;
  progress.cancel = true;
  EXPECT_EQ(scan_file(source, ledger, &progress).report.error().code, Code::kInterrupted);
  EXPECT_EQ(ledger.held_bytes(), 0U);
  for (std::uint64_t refused_idx = 0; refused_idx < 3; ++refused_idx) {
    memory::FailingLedger failing(kGiB, refused_idx);
    EXPECT_EQ(scan_file(source, failing).report.error().code, Code::kOverBudget);
  }
}

}  // namespace
}  // namespace lode::loader
