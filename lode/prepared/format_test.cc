#include "lode/prepared/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "lode/io/checksum.h"
#include "lode/layout/panels.h"
#include "lode/memory/buffer.h"

namespace lode::prepared {
namespace {

using families::Role;

loader::TensorPlace panels_place(Role role, std::uint64_t offset, std::uint64_t rows,
                                 std::uint64_t k) {
  const auto panels = layout::PanelLayout::make(formats::kNvfp4, rows, k);
  return {role, panels->meta(), offset, panels->total_bytes()};
}

std::vector<loader::StagePlan> stages_of(std::uint64_t num_experts) {
  loader::StagePlan model;
  model.name = "model";
  model.layer = loader::StagePlan::kModel;
  model.places = {{Role::kFinalNorm,
                   {formats::kPlainF32, tensor::Layout::kRowMajor, {32}},
                   0,
                   32 * sizeof(float)},
                  panels_place(Role::kOutputHead, 4096, 64, 32)};
  model.slab_bytes = 4096 + model.places[1].bytes;
  const auto panels = layout::PanelLayout::make(formats::kNvfp4, 64, 32);
  model.used_bytes = 32 * sizeof(float) + panels->used_bytes();
  loader::StagePlan layer;
  layer.name = "layer 0";
  layer.layer = 0;
  layer.places = {{Role::kRouter,
                   {formats::kPlainF32, tensor::Layout::kRowMajor, {8, 32}},
                   0,
                   8 * 32 * sizeof(float)}};
  layer.slab_bytes = 1024;
  layer.bank = loader::BankPlan{
      *layout::make_expert_record(32, 64, formats::kMxfp4, formats::kMxfp4, true), num_experts};
  const auto& record = layer.bank->record;
  layer.used_bytes = 1024 + num_experts * (record.record_bytes - record.padding_bytes);
  for (loader::StagePlan* stage : {&model, &layer}) {
    const auto dense = memory::buffer_cost(stage->slab_bytes);
    const auto bank = memory::buffer_cost(stage->bank ? stage->bank->bytes() : 0);
    stage->mapped_bytes = dense.tag_bytes + bank.tag_bytes;
    stage->page_table_bytes = dense.page_table_bytes + bank.page_table_bytes;
  }
  return {model, layer};
}

Index index_of(std::uint64_t num_experts = 8) {
  Index index = make_index(stages_of(num_experts));
  for (std::size_t i = 0; i < index.chunk_crcs.size(); ++i) {
    index.chunk_crcs[i] = static_cast<std::uint32_t>(0x9E3779B9U * (i + 1));
  }
  return index;
}

void expect_equal(const loader::StagePlan& a, const loader::StagePlan& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.layer, b.layer);
  EXPECT_EQ(a.slab_bytes, b.slab_bytes);
  EXPECT_EQ(a.used_bytes, b.used_bytes);
  EXPECT_EQ(a.mapped_bytes, b.mapped_bytes);
  EXPECT_EQ(a.page_table_bytes, b.page_table_bytes);
  ASSERT_EQ(a.places.size(), b.places.size());
  for (std::size_t i = 0; i < a.places.size(); ++i) {
    EXPECT_EQ(a.places[i].role, b.places[i].role);
    EXPECT_EQ(a.places[i].meta, b.places[i].meta);
    EXPECT_EQ(a.places[i].offset_bytes, b.places[i].offset_bytes);
    EXPECT_EQ(a.places[i].bytes, b.places[i].bytes);
  }
  ASSERT_EQ(a.bank.has_value(), b.bank.has_value());
  if (!a.bank) return;
  EXPECT_EQ(a.bank->record, b.bank->record);
  EXPECT_EQ(a.bank->num_experts, b.bank->num_experts);
}

TEST(PreparedIndex, ComesBackAsItWas) {
  const Index index = index_of();
  const auto read = decode(encode(index));
  ASSERT_TRUE(read) << to_string(read.error());
  ASSERT_EQ(read->stages.size(), index.stages.size());
  for (std::size_t i = 0; i < index.stages.size(); ++i) {
    expect_equal(read->stages[i], index.stages[i]);
  }
  EXPECT_EQ(read->sections, index.sections);
  EXPECT_EQ(read->chunk_crcs, index.chunk_crcs);
}

TEST(PreparedIndex, SectionsBeginOnMultiplesOfTwoMebibytesAndAreNeverCut) {
  // A bank of 20 GiB, twice: the second does not fit into the first file.
  std::vector<loader::StagePlan> stages = stages_of(1);
  const std::uint64_t record = stages[1].bank->record.record_bytes;
  stages[1].bank->num_experts = 20 * kGiB / record;
  stages.push_back(stages[1]);
  stages[2].layer = 1;
  const auto sections = lay_out(stages);
  ASSERT_EQ(sections.size(), 5U);
  std::uint64_t chunks = 0;
  for (const Section& section : sections) {
    EXPECT_EQ(section.file_offset_bytes % kSectionAlignment, 0U);
    EXPECT_EQ(section.bytes % kSectionUnit, 0U);
    EXPECT_EQ(section.first_chunk, chunks);
    chunks += section.num_chunks();
  }
  EXPECT_EQ(sections[2].file_idx, 0U);
  EXPECT_EQ(sections[4].file_idx, 1U);
  EXPECT_EQ(sections[4].file_offset_bytes, 0U);
  const auto files = file_bytes(sections);
  ASSERT_EQ(files.size(), 2U);
  EXPECT_LE(files[0], kMostFileBytes);
}

TEST(PreparedIndex, AnyChangedBitIsRefused) {
  const std::vector<std::byte> bytes = encode(index_of());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> bad = bytes;
    bad[i] ^= std::byte{1} << (i % 8);
    EXPECT_FALSE(decode(bad)) << i;
  }
}

TEST(PreparedIndex, AnyOtherLengthIsRefused) {
  std::vector<std::byte> bytes = encode(index_of());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode(std::span(bytes).first(size))) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode(bytes));
}

// The sums made right again: what is wrong must be seen by itself.
void sum_again(std::vector<std::byte>& bytes) {
  const auto put = [&](std::size_t at) {
    const std::uint32_t sum = io::crc32c(std::span(bytes).first(at));
    std::memcpy(bytes.data() + at, &sum, sizeof sum);
  };
  put(124);
  put(bytes.size() - 4);
}

TEST(PreparedIndex, WhateverItsRecordsSayNothingBreaksAndWhatIsTakenAddsUp) {
  const Index index = index_of();
  const std::vector<std::byte> bytes = encode(index);
  const std::size_t records_end = bytes.size() - 4 - 4 * index.chunk_crcs.size();
  for (std::size_t i = 8; i < records_end; ++i) {
    for (const unsigned value : {0U, 1U, 0x7FU, 0x80U, 0xFFU}) {
      std::vector<std::byte> bad = bytes;
      bad[i] = static_cast<std::byte>(value);
      sum_again(bad);
      const auto read = decode(bad);
      if (!read) continue;
      EXPECT_EQ(read->sections, lay_out(read->stages)) << i;
      EXPECT_EQ(read->chunk_crcs.size(), read->num_chunks()) << i;
    }
  }
}

TEST(PreparedIndex, AnotherVersionIsAnotherLayout) {
  std::vector<std::byte> bytes = encode(index_of());
  bytes[8] = std::byte{2};
  sum_again(bytes);
  const auto read = decode(bytes);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::kLayoutMismatch);
}

TEST(PreparedIndex, APlaceBeyondItsSlabIsRefusedByName) {
  Index index = index_of();
  index.stages[0].places[1].offset_bytes += 64;
  const auto read = decode(encode(index));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::kInvalidSource);
  EXPECT_THAT(read.error().thing, testing::HasSubstr("output_head of model"));
}

TEST(PreparedIndex, TwoPlacesThatOverlapAreRefused) {
  Index index = index_of();
  index.stages[0].places[1].offset_bytes = 64;
  EXPECT_FALSE(decode(encode(index)));
}

}  // namespace
}  // namespace lode::prepared
