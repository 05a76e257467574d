#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "lode/loader/checksum_sink.h"
#include "lode/loader/engine_stream.h"
#include "lode/loader/execute.h"
#include "lode/loader/stream.h"
#include "lode/prepared/checkpoint.h"
#include "lode/prepared/prepare.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/edited_checkpoint.h"
#include "tests/support/synthetic_weights.h"

namespace lode::prepared {

using testing_support::ExpertStorage;
using testing_support::FoldersInMemory;

inline constexpr std::uint64_t kRoomy = 4 * kGiB;

/// A synthetic checkpoint in a folder, a folder to prepare it into, and what must be there then.
class PreparedModel {
 public:
  explicit PreparedModel(const testing_support::SyntheticShape& shape = {})
      : weights_(shape, make_source_folder() / "model.safetensors") {
    std::ofstream(source_folder() / "config.json") << "{\"model_type\": \"synthetic\"}";
    reindex();
    replan(loader::DenseFormat::kAsStored);
  }

  std::filesystem::path source_folder() const { return folders_.path() / "source"; }
  std::filesystem::path shard() const { return source_folder() / "model.safetensors"; }
  std::filesystem::path out() const { return folders_.path() / "out"; }
  const loader::LoadPlan& plan() const { return plan_; }

  void reindex() {
    auto index = checkpoint::open_index(source_folder());
    ASSERT_TRUE(index) << to_string(index.error());
    index_ = *std::move(index);
  }
  /// Plans anew, and makes the sums that the result must have: by a stream that keeps nothing.
  void replan(loader::DenseFormat dense) {
    loader::LoadPolicy policy;
    policy.slot_bytes = 256 * kKiB;
    policy.dense = dense;
    plan_ = *loader::plan_load(weights_.binding(), weights_.spec(), *index_, policy);
    memory::Ledger ledger(kRoomy);
    loader::ChecksumSink sink;
    auto engine = loader::make_engine(plan_);
    ASSERT_TRUE(engine);
    ASSERT_TRUE(loader::stream(plan_, weights_.binding(), {ledger, **engine, sink}));
    crcs_ = sink.crcs();
  }
  /// For a GPU engine from now on: plans its tensors, and makes the sums of the result.
  void choose(const loader::EngineChoice& choice, std::uint32_t threads = 2) {
    choice_ = choice;
    auto engine_plan = loader::plan_engine(weights_.binding(), choice, threads);
    ASSERT_TRUE(engine_plan) << to_string(engine_plan.error());
    engine_ = *std::move(engine_plan);
    loader::LoadPlan dense = plan_;
    for (loader::StagePlan& stage : dense.stages) stage.bank.reset();
    memory::Ledger ledger(kRoomy);
    loader::ChecksumSink sink;
    auto engine = loader::make_engine(plan_);
    ASSERT_TRUE(engine);
    ASSERT_TRUE(loader::stream(dense, weights_.binding(), {ledger, **engine, sink}));
    const Status made = loader::stream_engine(*engine_, weights_.binding(),
                                              {ledger, **engine, sink, nullptr, {}, nullptr});
    ASSERT_TRUE(made) << to_string(made.error());
    crcs_ = sink.crcs();
  }
  const loader::EnginePlan& engine_plan() const { return *engine_; }
  loader::Binding& binding() { return weights_.binding(); }

  /// The plan with the sources as they are now.
  void replan_sources() {
    plan_ = *loader::plan_load(weights_.binding(), weights_.spec(), *index_, plan_.policy);
  }

  Input input() const {
    return {source_folder(), *index_,     weights_.binding(),
            plan_,           "synthetic", engine_ ? &*engine_ : nullptr,
            choice_};
  }
  Result<std::unique_ptr<Preparation>> open(const Options& options = {},
                                            io::SystemCalls& calls = io::system_calls(),
                                            std::filesystem::path to = {}) const {
    return Preparation::open(input(), to.empty() ? out() : to, options, calls);
  }
  Result<Report> prepare(const Options& options = {}, io::SystemCalls& calls = io::system_calls(),
                         loader::Progress* progress = nullptr) const {
    memory::Ledger ledger(kRoomy);
    LODE_TRY(const auto preparation, open(options, calls));
    auto report = preparation->run(ledger, progress);
    EXPECT_EQ(ledger.held_bytes(), 0U);
    return report;
  }

  /// Everything is there, and every chunk has the sum that it must have: in the index, and read.
  void expect_whole() const {
    auto whole = prepared::open(out(), Verification::kFull);
    ASSERT_TRUE(whole) << to_string(whole.error());
    EXPECT_EQ(whole->index.chunk_crcs, crcs_);
    EXPECT_EQ(crcs_of_files(whole->index), crcs_);
    EXPECT_FALSE(std::filesystem::exists(out() / kJournalFile));
    EXPECT_EQ(testing_support::read_text(out() / "config.json"),
              testing_support::read_text(source_folder() / "config.json"));
  }

  void touch_source() {
    const auto time = std::filesystem::last_write_time(shard());
    std::filesystem::last_write_time(shard(), time + std::chrono::seconds(2));
    reindex();
    replan_sources();
  }
  std::string source_header() const {
    std::string header(1 << 20, '\0');
    std::ifstream(shard(), std::ios::binary).read(header.data(), 1 << 20);
    return header;
  }
  /// Bytes that the source takes on the disk.
  std::uint64_t source_disk_bytes() const {
    struct stat status {};
    ::stat(shard().c_str(), &status);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  }

 private:
  std::filesystem::path make_source_folder() const {
    std::filesystem::create_directory(source_folder());
    return source_folder();
  }
  std::vector<std::uint32_t> crcs_of_files(const Index& index) const {
    std::vector<std::uint32_t> crcs;
    for (const Section& section : index.sections) {
      std::string bytes(section.bytes, '\0');
      std::ifstream file(out() / data_file_name(section.file_idx), std::ios::binary);
      file.seekg(static_cast<std::streamoff>(section.file_offset_bytes));
      file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      EXPECT_EQ(static_cast<std::uint64_t>(file.gcount()), section.bytes);
      for (std::uint64_t at = 0; at < section.bytes; at += kChunkBytes) {
        crcs.push_back(
            io::crc32c(testing_support::bytes_of(std::string_view(bytes).substr(at, kChunkBytes))));
      }
    }
    return crcs;
  }

  testing_support::TempFolder folders_;
  testing_support::SyntheticWeights weights_;
  std::optional<checkpoint::TensorIndex> index_;
  loader::LoadPlan plan_;
  std::optional<loader::EnginePlan> engine_;
  loader::EngineChoice choice_;
  std::vector<std::uint32_t> crcs_;
};

}  // namespace lode::prepared
