#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "lode/engine/engine.h"
#include "lode/json/json.h"

// For tests only: the model in models/ and small golden checkpoints as engines that run.

namespace lode::engine {

inline std::filesystem::path story_folder() {
  return std::filesystem::path(LODE_SOURCE_DIR) / "models/story-moe-nvfp4";
}
inline std::filesystem::path golden_folder(const std::string& name) {
  return std::filesystem::path(LODE_GOLDEN_DIR) / name;
}

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// tests/golden/story/reference.json: what transformers says of the story model in f32.
inline json::Value story_reference() {
  auto value = json::parse(file_text(golden_folder("story/reference.json")));
  LODE_CHECK(value, "a golden file that is no JSON");
  return *std::move(value);
}

/// A machine that is large and the same everywhere.
inline memory::MachineMemory test_machine() {
  return {.total_bytes = std::uint64_t{64} << 30,
          .available_bytes = std::uint64_t{32} << 30,
          .cgroups = {}};
}

/// A run of few tokens whose logits are looked at.
inline Settings small_settings() {
  Settings settings;
  settings.context_tokens = 64;
  settings.threads = 2;
  settings.logits_rows = 8;
  return settings;
}

inline Source source_of(const std::filesystem::path& folder) {
  auto source = open_source(folder);
  LODE_CHECK(source, "a test checkpoint that cannot be opened");
  return *std::move(source);
}

inline RunPlan plan_of(const Source& source, const Settings& settings) {
  auto plan = plan_run(source, settings, test_machine());
  LODE_CHECK(plan, "a test run that cannot be planned");
  return *std::move(plan);
}

/// An engine that runs, with its account.
struct TestEngine {
  std::unique_ptr<memory::Ledger> ledger;
  RunPlan plan;
  std::unique_ptr<Engine> engine;

  Engine* operator->() const { return engine.get(); }
};

inline TestEngine start_engine(const std::filesystem::path& folder, const Settings& settings) {
  TestEngine test;
  Source source = source_of(folder);
  test.plan = plan_of(source, settings);
  test.ledger = std::make_unique<memory::Ledger>(test.plan.budget.limit_bytes);
  auto engine = Engine::start(std::move(source), test.plan, *test.ledger);
  EXPECT_TRUE(engine) << to_string(engine.error());
  LODE_CHECK(engine, "a test engine that does not start");
  test.engine = *std::move(engine);
  return test;
}

}  // namespace lode::engine
