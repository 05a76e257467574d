#include "lode/engine/load_watch.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "lode/parallel/ticker.h"

namespace lode::engine {
namespace {

constexpr std::chrono::milliseconds kPeriod{10};

}  // namespace

struct LoadWatch::Shared {
  const memory::HeldProbe* probe;
  const loader::Progress* progress;
  OnTick on_tick;
  KernelFigures figures;                   // the ticker's until it has ended
  std::optional<parallel::Ticker> ticker;  // last: ends first

  void sample() {
    // Read before the kernel is asked, so that what becomes finished meanwhile is not credited.
    const std::uint64_t finished = progress->finished_bytes.load();
    const auto held = probe->held_bytes();
    if (held) {
      figures.num_samples += 1;
      figures.peak_held_bytes = std::max(figures.peak_held_bytes, *held);
      const std::uint64_t over = *held - std::min(*held, finished);
      figures.peak_over_finished_bytes = std::max(figures.peak_over_finished_bytes, over);
    }
    if (on_tick) on_tick();
  }
};

LoadWatch::LoadWatch(std::unique_ptr<Shared> shared) : shared_(std::move(shared)) {}
LoadWatch::~LoadWatch() = default;
LoadWatch::LoadWatch(LoadWatch&&) noexcept = default;
LoadWatch& LoadWatch::operator=(LoadWatch&&) noexcept = default;

Result<LoadWatch> LoadWatch::start(const memory::HeldProbe& probe, const loader::Progress& progress,
                                   OnTick on_tick) {
  auto shared = std::make_unique<Shared>();
  shared->probe = &probe;
  shared->progress = &progress;
  shared->on_tick = std::move(on_tick);
  LODE_TRY(shared->ticker,
           parallel::Ticker::start(kPeriod, [watched = shared.get()] { watched->sample(); }));
  return LoadWatch(std::move(shared));
}

void LoadWatch::stop() { shared_->ticker.reset(); }

Result<KernelFigures> LoadWatch::finish(const checkpoint::TensorIndex& index) {
  stop();
  LODE_TRY(shared_->figures.held_bytes, shared_->probe->exact_held_bytes());
  for (const checkpoint::Shard& shard : index.shards()) {
    LODE_TRY(const std::uint64_t resident, memory::resident_bytes(shard.path));
    shared_->figures.source_cache_bytes += resident;
  }
  return shared_->figures;
}

}  // namespace lode::engine
