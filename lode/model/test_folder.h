#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lode/checkpoint/hf_config.h"
#include "lode/checkpoint/quant_config.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/families/family.h"
#include "lode/json/json.h"
#include "lode/loader/execute.h"
#include "lode/model/model.h"

// For tests only: golden folders as numbers and as models that run.

namespace lode::model {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline json::Value read_json(const std::filesystem::path& path) {
  auto value = json::parse(read_text(path));
  LODE_CHECK(value, "a golden file that is no JSON");
  return *std::move(value);
}

/// The tensors of a golden.safetensors, read without the code under test.
class GoldenTensors {
 public:
  explicit GoldenTensors(const std::filesystem::path& path) : text_(read_text(path)) {
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, text_.data(), sizeof header_bytes);
    data_ = sizeof header_bytes + header_bytes;
    auto header = json::parse(std::string_view(text_).substr(sizeof header_bytes, header_bytes));
    LODE_CHECK(header, "a golden file that is no safetensors");
    header_ = *std::move(header);
  }
  bool has(const std::string& name) const { return header_.find(name) != nullptr; }
  std::vector<float> floats(const std::string& name) const { return numbers<float>(name); }
  std::vector<std::int32_t> ids(const std::string& name) const {
    if (*header_.find(name)->find("dtype")->as_string() == "I32") {
      return numbers<std::int32_t>(name);
    }
    const std::vector<std::int64_t> wide = numbers<std::int64_t>(name);
    return std::vector<std::int32_t>(wide.begin(), wide.end());
  }

 private:
  template <class T>
  std::vector<T> numbers(const std::string& name) const {
    const json::Array& ends = *header_.find(name)->find("data_offsets")->as_array();
    const auto begin = static_cast<std::size_t>(*ends[0].as_int());
    std::vector<T> out((static_cast<std::size_t>(*ends[1].as_int()) - begin) / sizeof(T));
    std::memcpy(out.data(), text_.data() + data_ + begin, out.size() * sizeof(T));
    return out;
  }
  std::string text_;
  json::Value header_;
  std::size_t data_ = 0;
};

/// A checkpoint folder loaded by the loader, with everything that a model needs beside it.
class LoadedFolder {
 public:
  static Result<std::unique_ptr<LoadedFolder>> open(const std::filesystem::path& folder) {
    LODE_TRY(const checkpoint::HfConfig config, checkpoint::HfConfig::read(folder));
    LODE_TRY(const checkpoint::QuantConfig quant, checkpoint::read_quant_config(folder, config));
    LODE_TRY(const checkpoint::TensorIndex index, checkpoint::open_index(folder));
    LODE_TRY(const families::Family* const family, families::find_family(config));
    auto loaded = std::make_unique<LoadedFolder>();
    LODE_TRY(loaded->spec, family->read_spec(config));
    LODE_TRY(const loader::Binding binding, loader::bind(index, *family, loaded->spec, quant));
    LODE_TRY(const loader::LoadPlan plan, loader::plan_load(binding, loaded->spec, index, {}));
    LODE_TRY(const auto engine, loader::make_engine(plan));
    LODE_TRY(loaded->weights, loader::execute(plan, binding, loaded->ledger, *engine));
    return loaded;
  }

  memory::Ledger ledger{std::uint64_t{1} << 40};
  families::ModelSpec spec;
  loader::WeightSet weights;
};

/// Keeps what it is shown, in the order of the tokens of one sequence.
class Recorder final : public Observer {
 public:
  void hidden(std::uint32_t index, std::span<const ops::RowPlace> places,
              const ops::Rows& rows) noexcept override {
    for (std::size_t row = 0; row < places.size(); ++row) {
      states[index].insert(states[index].end(), rows.row(row).begin(), rows.row(row).end());
    }
  }
  void routes(std::uint32_t layer, std::span<const ops::RowPlace>,
              std::span<const std::int32_t> row_ids,
              std::span<const float> row_weights) noexcept override {
    ids[layer].insert(ids[layer].end(), row_ids.begin(), row_ids.end());
    weights[layer].insert(weights[layer].end(), row_weights.begin(), row_weights.end());
  }
  std::map<std::uint32_t, std::vector<float>> states;
  std::map<std::uint32_t, std::vector<std::int32_t>> ids;
  std::map<std::uint32_t, std::vector<float>> weights;
};

/// A model with threads of its own.
class TestModel {
 public:
  TestModel(memory::Ledger& ledger, const families::ModelSpec& spec,
            const loader::WeightSet& weights, const ModelOptions& options,
            std::size_t num_threads = 1, const kernels::KernelTable& kernels = **kernels::active())
      : ledger_(&ledger), pool_(num_threads) {
    auto made = Model::make(ledger, spec, weights, kernels, pool_, options);
    LODE_CHECK(made, "a test model that cannot be made");
    model_ = std::make_unique<Model>(*std::move(made));
  }
  TestModel(LoadedFolder& folder, const ModelOptions& options, std::size_t num_threads = 1,
            const kernels::KernelTable& kernels = **kernels::active())
      : TestModel(folder.ledger, folder.spec, folder.weights, options, num_threads, kernels) {}

  Model& operator*() { return *model_; }
  Model* operator->() { return model_.get(); }
  KvCache cache(std::uint64_t max_tokens) const {
    auto made = model_->make_cache(*ledger_, max_tokens);
    LODE_CHECK(made, "a test cache that cannot be made");
    return *std::move(made);
  }
  /// Logits of every token of a fresh sequence, taken in calls of `call_tokens`.
  std::vector<float> logits(std::span<const std::int32_t> tokens, std::size_t call_tokens,
                            Observer* observer = nullptr) {
    KvCache fresh = cache(tokens.size());
    const std::size_t vocab = model_->spec().vocab;
    std::vector<float> out(tokens.size() * vocab);
    for (std::size_t first = 0; first < tokens.size(); first += call_tokens) {
      const std::size_t count = std::min(call_tokens, tokens.size() - first);
      const auto done =
          model_->forward(tokens.subspan(first, count), fresh, Logits::kAll,
                          std::span(out).subspan(first * vocab, count * vocab), observer);
      LODE_CHECK(done, "a pass that failed");
    }
    return out;
  }

 private:
  memory::Ledger* ledger_;
  parallel::ThreadPool pool_;
  std::unique_ptr<Model> model_;
};

}  // namespace lode::model
