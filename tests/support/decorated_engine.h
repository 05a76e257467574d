#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lode/io/read_engine.h"

namespace lode::testing_support {

/// An engine that does what another does. Tests change one thing about it.
class DecoratedEngine : public io::ReadEngine {
 public:
  explicit DecoratedEngine(std::unique_ptr<io::ReadEngine> engine) : engine_(std::move(engine)) {}
  void submit(const io::ReadRequest& request) override { engine_->submit(request); }
  io::ReadCompletion wait() override { return engine_->wait(); }
  Status finish() override { return engine_->finish(); }
  std::vector<std::uint64_t> bytes_read() const override { return engine_->bytes_read(); }
  std::string description() const override { return engine_->description(); }

 private:
  std::unique_ptr<io::ReadEngine> engine_;
};

/// Breaks the contract: memory as large as every read that is `chosen` stays until the engine goes.
class KeepingEngine : public DecoratedEngine {
 public:
  using Choice = std::function<bool(const io::ReadRequest&)>;
  KeepingEngine(std::unique_ptr<io::ReadEngine> engine, Choice chosen)
      : DecoratedEngine(std::move(engine)), chosen_(std::move(chosen)) {}

  void submit(const io::ReadRequest& request) override {
    if (chosen_(request)) kept_.emplace_back(request.out.size(), std::byte{1});
    DecoratedEngine::submit(request);
  }
  std::uint64_t kept_bytes() const {
    std::uint64_t bytes = 0;
    for (const std::vector<std::byte>& one : kept_) bytes += one.size();
    return bytes;
  }

 private:
  Choice chosen_;
  std::vector<std::vector<std::byte>> kept_;
};

}  // namespace lode::testing_support
