#include "lode/engine/load_watch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <vector>

#include "lode/memory/buffer.h"
#include "lode/parallel/ticker.h"

namespace lode::engine {
namespace {

constexpr std::chrono::milliseconds kPeriod{10};
constexpr std::uint64_t kTicksAPressureSample = 20;
constexpr std::size_t kWindowSamples = 6;  // a second

}  // namespace

struct LoadWatch::Shared {
  const memory::HeldProbe* probe;
  loader::Progress* progress;
  WatchDuties duties;
  KernelFigures figures;  // the ticker's until it has ended
  std::uint64_t num_ticks = 0;
  std::vector<memory::PressureSample> window;
  std::string pressure;
  std::optional<parallel::Ticker> ticker;  // last: ends first

  void tick() {
    sample();
    if (duties.on_tick) duties.on_tick();
  }

  void sample() {
    // Read before the kernel is asked, so that what becomes finished meanwhile is not credited.
    // What maps finished weights belongs to them.
    const std::uint64_t weights = progress->finished_bytes.load();
    const std::uint64_t finished = weights + memory::page_table_bytes(weights);
    const auto held = probe->held_bytes();
    if (held) {
      figures.num_samples += 1;
      figures.peak_held_bytes = std::max(figures.peak_held_bytes, *held);
      const std::uint64_t over = *held - std::min(*held, finished);
      figures.peak_over_finished_bytes = std::max(figures.peak_over_finished_bytes, over);
      if (num_ticks % kTicksAPressureSample == 0) watch_pressure(*held);
    }
    if (const auto total = memory::process_total_bytes()) {
      figures.peak_total_bytes = std::max(figures.peak_total_bytes, *total);
    }
    ++num_ticks;
  }

  // However short the load was, it has been looked at once.
  void stop() {
    if (!ticker) return;
    ticker.reset();
    sample();
  }

  Status ask_page_cache(const std::string& path) {
    const auto resident = memory::resident_bytes(path);
    if (resident) {
      figures.source_cache_bytes = figures.source_cache_bytes.value_or(0) + *resident;
      return {};
    }
    if (resident.error().code == Code::kUnsupported) return {};  // another's file: not measured
    return resident.error();
  }

  void watch_pressure(std::uint64_t held_bytes) {
    if (!duties.read_pressure || !pressure.empty()) return;
    auto sample = duties.read_pressure();
    if (!sample) return;  // who does not say cannot be asked; the load goes on as without a watch
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    sample->at_us = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(now).count());
    sample->to_come_bytes = duties.load_peak_bytes - std::min(duties.load_peak_bytes, held_bytes);
    if (window.size() == kWindowSamples) window.erase(window.begin());
    window.push_back(*std::move(sample));
    const auto seen = memory::pressure_seen(window);
    if (!seen) return;
    pressure = *seen;
    progress->pressed.store(true);
  }
};

LoadWatch::LoadWatch(std::unique_ptr<Shared> shared) : shared_(std::move(shared)) {}
LoadWatch::~LoadWatch() = default;
LoadWatch::LoadWatch(LoadWatch&&) noexcept = default;
LoadWatch& LoadWatch::operator=(LoadWatch&&) noexcept = default;

Result<LoadWatch> LoadWatch::start(const memory::HeldProbe& probe, loader::Progress& progress,
                                   WatchDuties duties) {
  auto shared = std::make_unique<Shared>();
  shared->probe = &probe;
  shared->progress = &progress;
  shared->duties = std::move(duties);
  LODE_TRY(shared->ticker,
           parallel::Ticker::start(kPeriod, [watched = shared.get()] { watched->tick(); }));
  return LoadWatch(std::move(shared));
}

void LoadWatch::stop() { shared_->stop(); }

const std::string& LoadWatch::pressure() const noexcept { return shared_->pressure; }

Result<KernelFigures> LoadWatch::finish(std::span<const io::SourceFile> files) {
  stop();
  LODE_TRY(shared_->figures.held_bytes, shared_->probe->exact_held_bytes());
  for (const io::SourceFile& file : files) LODE_TRY_STATUS(shared_->ask_page_cache(file.path));
  return shared_->figures;
}

}  // namespace lode::engine
