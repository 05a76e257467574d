#include "tools/synth/write.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "tools/synth/config.h"
#include "tools/synth/files.h"
#include "tools/synth/image.h"
#include "tools/synth/plan.h"

namespace lode::synth {
namespace {

/// Runs work(0) to work(count - 1) on some threads until one fails; the first failure.
Status for_all(std::size_t count, unsigned threads,
               const std::function<Status(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  Status outcome;
  const auto worker = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      Status done = work(i);
      if (done) continue;
      next = count;
      const std::lock_guard lock(mutex);
      if (outcome) outcome = std::move(done);
    }
  };
  {
    std::vector<std::jthread> pool;
    for (unsigned i = 1; i < threads; ++i) pool.emplace_back(worker);
    worker();
  }
  return outcome;
}

class Writer {
 public:
  Writer(const Recipe& recipe, const FloatSource& source, const Plan& plan, const Shards& shards)
      : recipe_(recipe), source_(source), plan_(plan), shards_(shards) {}

  /// The first pass over the float model, where a scale of the matrix asks for one.
  Status measure(unsigned threads) {
    amax_.resize(plan_.sharing.size());
    const bool needed = std::ranges::any_of(
        plan_.jobs, [](const Job& job) { return has_matrix_scale(job.encoding); });
    if (!needed || recipe_.random_codes) return {};
    return for_all(plan_.sharing.size(), threads, [this](std::size_t i) -> Status {
      LODE_TRY(amax_[i], largest_of(plan_.sharing[i], source_));
      return {};
    });
  }

  Status write(unsigned threads) const {
    return for_all(plan_.jobs.size(), threads,
                   [this](std::size_t i) { return write_job(plan_.jobs[i]); });
  }

  /// Only the scales of matrices, which a reader refuses to see as 0.
  Status write_sparse() const {
    const float one = 1.0F;
    for (const Job& job : plan_.jobs) {
      if (!job.tensor_scale) continue;
      LODE_TRY_STATUS(put(*job.tensor_scale, std::as_bytes(std::span(&one, 1))));
    }
    return {};
  }

 private:
  Status put(const Place& place, std::span<const std::byte> bytes) const {
    return shards_.write(plan_.tensors[place.tensor], place.offset, bytes);
  }

  Status write_job(const Job& job) const {
    LODE_TRY(const Image image, image_of(job));
    LODE_TRY_STATUS(put(job.codes, image.codes));
    if (job.scales) LODE_TRY_STATUS(put(*job.scales, image.scales));
    if (!job.tensor_scale) return {};
    return put(*job.tensor_scale, std::as_bytes(std::span(&image.tensor_scale, 1)));
  }

  Result<Image> image_of(const Job& job) const {
    if (recipe_.random_codes)
      return make_image(job, RandomMaker(recipe_.seed, recipe_.even_scales));
    std::optional<float> amax;
    if (has_matrix_scale(job.encoding)) amax = amax_[*job.amax_of];
    return make_image(job, QuantisingMaker(source_, amax));
  }

  const Recipe& recipe_;
  const FloatSource& source_;
  const Plan& plan_;
  const Shards& shards_;
  std::vector<float> amax_;
};

}  // namespace

Result<Written> write_checkpoint(const Recipe& recipe, const FloatSource& source,
                                 const std::filesystem::path& folder,
                                 const std::optional<json::Object>& base, unsigned threads) {
  const auto start = std::chrono::steady_clock::now();
  LODE_TRY(const Resolved resolved, resolve(recipe));
  const Plan plan = plan_checkpoint(recipe, resolved);
  LODE_TRY_STATUS(write_configs(folder, recipe, resolved, plan, base));
  LODE_TRY(const Shards shards, Shards::make(folder, recipe, plan));
  Writer writer(recipe, source, plan, shards);
  if (recipe.sparse) {
    LODE_TRY_STATUS(writer.write_sparse());
  } else {
    LODE_TRY_STATUS(writer.measure(threads));
    LODE_TRY_STATUS(writer.write(threads));
  }
  Written written{.tensors = plan.tensors.size()};
  for (const PlannedTensor& tensor : plan.tensors) written.tensor_bytes += tensor.bytes;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  written.seconds = took.count();
  return written;
}

}  // namespace lode::synth
