#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/kernels/kernel_table.h"
#include "lode/parallel/thread_pool.h"

namespace lode::ops {

/// kExact: f32 activations and the law of the kernel table. kFast: what each kernel does best.
enum class Mode : std::uint8_t { kExact, kFast };

/// Rows of one call of a panel kernel; more rows are more calls. A row's result does not depend on
/// it.
inline constexpr std::size_t kRowBlock = 64;
/// Panels that one task works on at most, which bounds its tile.
inline constexpr std::size_t kMaxTaskPanels = 16;

/// With what everything is computed: kernels, threads, and a tile of floats for each thread. A
/// view: whoever owns these outlives it.
struct Compute {
  const kernels::KernelTable* table = nullptr;
  parallel::ThreadPool* pool = nullptr;
  Mode mode = Mode::kExact;
  std::span<float> tiles;       // one after another, tile_floats each
  std::size_t tile_floats = 0;  // at least kRowBlock * kMaxTaskPanels * kPanelRows

  std::span<float> tile(std::size_t thread) const noexcept {
    return tiles.subspan(thread * tile_floats, tile_floats);
  }
  kernels::PanelDotFn dot(kernels::PanelKind kind) const noexcept {
    const auto index = static_cast<std::size_t>(kind);
    return mode == Mode::kExact ? table->exact_dot[index] : table->fast_dot[index];
  }
  kernels::ActivationForm form(kernels::PanelKind kind) const noexcept {
    return mode == Mode::kExact ? kernels::ActivationForm::kF32
                                : table->fast_form[static_cast<std::size_t>(kind)];
  }
};

/// Work on weights: so many panels a task that it streams about 192 KiB, that every thread gets
/// several tasks, and that the tile holds them. Only speed depends on it.
std::size_t panels_per_task(std::size_t num_panels, std::size_t panel_bytes, std::size_t threads);

/// Calls body(index, thread) for each index below `count`, in any order; on this thread alone where
/// there is only one.
template <class Body>
void for_each(const Compute& compute, std::size_t count, const Body& body) noexcept {
  if (count == 1) {
    body(std::size_t{0}, std::size_t{0});
  } else if (count > 1) {
    compute.pool->run(count, body);
  }
}

}  // namespace lode::ops
