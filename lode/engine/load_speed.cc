#include "lode/engine/load_speed.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/io/file_cache.h"
#include "lode/io/read_engine.h"
#include "lode/io/system_calls.h"
#include "lode/loader/execute.h"
#include "lode/memory/buffer.h"
#include "lode/parallel/thread_pool.h"

namespace lode::engine {
namespace {

constexpr std::uint64_t kPieceBytes = 2 * kMiB;
constexpr std::uint64_t kRawReads = 8;
constexpr std::uint64_t kCopiedBytes = 512 * kMiB;  // what is copied from: no cache holds it

std::uint64_t cpu_us() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 +
           static_cast<std::uint64_t>(time.tv_usec);
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

class Stopwatch {
 public:
  Pass stop(std::uint64_t bytes) const {
    const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - begin_);
    return {bytes, std::max<std::uint64_t>(1, static_cast<std::uint64_t>(passed.count())),
            cpu_us() - cpu_begin_us_};
  }

 private:
  std::uint64_t cpu_begin_us_ = cpu_us();
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class Measurement {
 public:
  Measurement(const Source& source, const LoadSpeedSettings& settings, loader::LoadPlan plan)
      : source_(source),
        settings_(settings),
        plan_(std::move(plan)),
        pool_(settings.policy.workers) {
    for (const io::SourceFile& file : plan_.sources) speed_.source_bytes += file.bytes;
    for (const std::string_view name :
         {"raw", "cold", "buffered", "warm", "ring", "copy", "fresh"}) {
      speed_.kinds.push_back({name, {}, {}});
    }
  }

  Result<LoadSpeed> run(const std::function<bool()>& go_on) {
    for (std::uint32_t round = 0; round < settings_.rounds; ++round) {
      for (PassKind& kind : speed_.kinds) {
        if (go_on && !go_on()) {
          return Error{.code = Code::kInterrupted, .thing = "measurement", .found = "interrupted"};
        }
        LODE_TRY(const std::optional<Pass> pass, measure(kind));
        if (pass) kind.rounds.push_back(*pass);
      }
    }
    LODE_TRY_STATUS(io::drop_from_page_cache(plan_.sources));
    return std::move(speed_);
  }

 private:
  Result<std::optional<Pass>> measure(PassKind& kind) {
    if (kind.name == "raw") return read_raw(kind);
    if (kind.name == "cold") return load(kind, settings_.policy.io, false);
    if (kind.name == "buffered") return load(kind, io::IoKind::kBuffered, false);
    if (kind.name == "warm") return load(kind, settings_.policy.io, true);
    if (kind.name == "ring") return copy_through_ring(kind);
    return copy(kind, kind.name == "fresh");
  }

  // Files and weights, one beside the other.
  bool fits_in_page_cache() const {
    return speed_.source_bytes + plan_.peak_bytes() + kGiB <= settings_.available_bytes;
  }

  // A virtual machine gives memory that is free back to its host, and the host takes its time to
  // bring it again: up to half a second a GB, which is no load's fault. What is about to be used is
  // brought before it counts.
  Status bring_memory() {
    memory::Ledger ledger(settings_.limit_bytes);
    LODE_TRY(memory::Buffer buffer,
             memory::make_buffer(ledger, memory::Tag::kScratch, plan_.weight_bytes(), "touched"));
    const auto bytes = buffer.mutate();
    for (std::size_t at = 0; at < bytes.size(); at += memory::kPageBytes) bytes[at] = std::byte{1};
    return {};
  }

  Result<std::optional<Pass>> read_raw(PassKind& kind) {
    LODE_TRY_STATUS(io::drop_from_page_cache(plan_.sources));
    memory::Ledger ledger(2 * kRawReads * kPieceBytes);
    LODE_TRY(memory::Buffer ring,
             memory::make_buffer(ledger, memory::Tag::kStaging, kRawReads * kPieceBytes, "ring"));
    io::ReadPolicy policy{.kind = io::IoKind::kUring, .try_depths = false};
    const Stopwatch watch;
    auto engine = io::make_read_engine(plan_.sources, policy);
    if (!engine) {
      policy.kind = io::IoKind::kThreads;
      engine = io::make_read_engine(plan_.sources, policy);
    }
    if (!engine) return std::move(engine).error();
    LODE_TRY_STATUS(read_all(**engine, ring.mutate()));
    kind.how = (*engine)->description();
    return std::optional(watch.stop(speed_.source_bytes));
  }

  Status read_all(io::ReadEngine& engine, std::span<std::byte> ring) const {
    std::uint64_t under_way = 0;
    std::uint64_t next_slot = 0;
    for (std::uint32_t id = 0; id < plan_.sources.size(); ++id) {
      for (std::uint64_t at = 0; at < plan_.sources[id].bytes; at += kPieceBytes) {
        std::uint64_t slot = next_slot;
        if (under_way == kRawReads) {
          const io::ReadCompletion done = engine.wait();
          LODE_TRY_STATUS(done.status);
          slot = done.ticket;
        } else {
          ++under_way;
          ++next_slot;
        }
        const std::uint64_t bytes = std::min(kPieceBytes, plan_.sources[id].bytes - at);
        engine.submit({id, at, ring.subspan(slot * kPieceBytes, bytes), slot, true});
      }
    }
    for (; under_way > 0; --under_way) LODE_TRY_STATUS(engine.wait().status);
    return {};
  }

  Result<std::optional<Pass>> load(PassKind& kind, io::IoKind io, bool warm) {
    if (warm) {
      if (!fits_in_page_cache()) return std::optional<Pass>();
      LODE_TRY_STATUS(io::bring_into_page_cache(plan_.sources));
    } else {
      LODE_TRY_STATUS(io::drop_from_page_cache(plan_.sources));
    }
    LODE_TRY_STATUS(bring_memory());
    loader::LoadPlan plan = plan_;
    plan.policy.io = io;
    memory::Ledger ledger(settings_.limit_bytes);
    const Stopwatch watch;
    LODE_TRY(const auto engine, loader::make_engine(plan));
    LODE_TRY(const loader::WeightSet weights,
             loader::execute(plan, source_.binding, ledger, *engine));
    const Pass pass = watch.stop(source_.index.tensor_bytes());
    kind.how = engine->description();
    return std::optional(pass);
  }

  Result<std::optional<Pass>> copy_through_ring(PassKind& kind) {
    if (!fits_in_page_cache()) return std::optional<Pass>();
    kind.how = fmt::format("pread of 2.0 MiB and memcpy, {} threads", pool_.num_threads());
    LODE_TRY_STATUS(io::bring_into_page_cache(plan_.sources));
    LODE_TRY_STATUS(bring_memory());
    memory::Ledger ledger(settings_.limit_bytes + speed_.source_bytes);
    LODE_TRY(memory::Buffer ring, memory::make_buffer(ledger, memory::Tag::kStaging,
                                                      pool_.num_threads() * kPieceBytes, "ring"));
    LODE_TRY(memory::Buffer to,
             memory::make_buffer(ledger, memory::Tag::kWeights, speed_.source_bytes, "copies"));
    const Stopwatch watch;
    std::span<std::byte> rest = to.mutate();
    for (const io::SourceFile& file : plan_.sources) {
      LODE_TRY_STATUS(copy_file(file, ring.mutate(), rest.first(file.bytes)));
      rest = rest.subspan(file.bytes);
    }
    return std::optional(watch.stop(speed_.source_bytes));
  }

  Status copy_file(const io::SourceFile& file, std::span<std::byte> ring, std::span<std::byte> to) {
    io::SystemCalls& calls = io::system_calls();
    const int descriptor = calls.open(file.path, O_RDONLY, 0);
    if (descriptor < 0) return io::system_error(file.path, "open", descriptor);
    std::atomic<bool> all_read = true;
    pool_.run(ceil_div(file.bytes, kPieceBytes), [&](std::size_t piece, std::size_t thread) {
      const std::uint64_t at = piece * kPieceBytes;
      const std::uint64_t bytes = std::min(kPieceBytes, file.bytes - at);
      const auto slot = ring.subspan(thread * kPieceBytes, bytes);
      if (calls.pread(descriptor, slot, at) != static_cast<std::int64_t>(bytes)) all_read = false;
      std::memcpy(to.data() + at, slot.data(), bytes);
    });
    calls.close(descriptor);
    if (all_read) return {};
    return Error{.code = Code::kIo, .thing = file.path, .wanted = "whole pieces", .found = "less"};
  }

  Result<std::optional<Pass>> copy(PassKind& kind, bool fresh) {
    kind.how = fmt::format("memcpy, {} threads", pool_.num_threads());
    LODE_TRY_STATUS(bring_memory());
    memory::Ledger ledger(settings_.limit_bytes + 2 * kCopiedBytes);
    const std::uint64_t bytes = plan_.weight_bytes();
    LODE_TRY(memory::Buffer from, memory::make_buffer(ledger, memory::Tag::kScratch,
                                                      std::min(bytes, kCopiedBytes), "copied"));
    LODE_TRY(memory::Buffer to,
             memory::make_buffer(ledger, memory::Tag::kWeights, bytes, "copies"));
    std::fill(from.mutate().begin(), from.mutate().end(), std::byte{1});
    if (!fresh) copy_all(from.bytes(), to.mutate());
    const Stopwatch watch;
    copy_all(from.bytes(), to.mutate());
    return std::optional(watch.stop(bytes));
  }

  void copy_all(std::span<const std::byte> from, std::span<std::byte> to) {
    pool_.run(ceil_div<std::uint64_t>(to.size(), kPieceBytes), [&](std::size_t task, std::size_t) {
      const auto part =
          to.subspan(task * kPieceBytes)
              .first(std::min<std::uint64_t>(kPieceBytes, to.size() - task * kPieceBytes));
      const std::uint64_t begin = task * kPieceBytes % from.size();
      const std::uint64_t bytes = std::min<std::uint64_t>(part.size(), from.size() - begin);
      std::memcpy(part.data(), from.data() + begin, bytes);
    });
  }

  const Source& source_;
  const LoadSpeedSettings& settings_;
  const loader::LoadPlan plan_;
  parallel::ThreadPool pool_;
  LoadSpeed speed_;
};

}  // namespace

double Pass::bytes_per_second() const noexcept {
  return static_cast<double>(bytes) * 1e6 /
         static_cast<double>(std::max<std::uint64_t>(1, time_us));
}

double Pass::cpu_seconds_per_gb() const noexcept {
  return static_cast<double>(cpu_us) * 1e3 / static_cast<double>(std::max<std::uint64_t>(1, bytes));
}

const PassKind* LoadSpeed::find(std::string_view name) const noexcept {
  const auto at = std::ranges::find(kinds, name, &PassKind::name);
  return at == kinds.end() ? nullptr : &*at;
}

std::vector<double> LoadSpeed::ratios(std::string_view kind, std::string_view over) const {
  std::vector<double> ratios;
  const PassKind* const a = find(kind);
  const PassKind* const b = find(over);
  if (a == nullptr || b == nullptr) return ratios;
  for (std::size_t i = 0; i < std::min(a->rounds.size(), b->rounds.size()); ++i) {
    ratios.push_back(a->rounds[i].bytes_per_second() / b->rounds[i].bytes_per_second());
  }
  return ratios;
}

Result<LoadSpeed> measure_load(const Source& source, const LoadSpeedSettings& settings,
                               const std::function<bool()>& go_on) {
  LODE_TRY_STATUS(check_not_prepared(source));
  LODE_TRY(loader::LoadPlan plan,
           loader::plan_load(source.binding, source.spec, source.index, settings.policy));
  return Measurement(source, settings, std::move(plan)).run(go_on);
}

}  // namespace lode::engine
