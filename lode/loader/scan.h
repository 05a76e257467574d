#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/io/read_engine.h"
#include "lode/loader/binding.h"
#include "lode/loader/progress.h"
#include "lode/memory/ledger.h"

namespace lode::loader {

/// A tensor with numbers that no model can use.
struct ScanFault {
  std::string tensor;
  std::string what;   // "3 numbers that are not finite, the first at [17, 5]"
  std::string where;  // the shard
};

/// What the numbers of a checkpoint are like.
struct ScanReport {
  std::vector<ScanFault> faults;  // in the order of the files
  std::uint64_t num_tensors = 0;
  std::uint64_t num_bytes = 0;
  // Of the block scales. None of these is a fault: a block of zeros has scale zero.
  std::uint64_t num_scales = 0;
  std::uint64_t zero_scales = 0;
  std::uint64_t denormal_scales = 0;
  std::uint64_t negative_scales = 0;
  // Gate and up matrices whose scales of the matrix differ: legal here, refused by other engines.
  std::uint64_t unequal_pairs = 0;
  std::string first_unequal_pair;  // "layer 3, expert 5"
  // Second-level scales that make weights of thousands: as if a divisor was read as a multiplier,
  // or the other way round.
  std::uint64_t implausible_scales = 0;
  std::string first_implausible_scale;  // "layer 3, expert 5, gate"
  // Scales of matrices that as multipliers are below the normal numbers of F32.
  std::uint64_t denormal_matrix_scales = 0;
  std::string first_denormal_matrix_scale;  // as above
};

/// Reads every byte of every tensor and looks at the numbers: weights, vectors and block scales
/// must be finite, scales of matrices and of activations finite and above zero, those of
/// activations with a finite reciprocal. `progress` may be null.
///
/// Memory: a ring of 16 MiB, 16 bytes a tensor, second-level scales with what keeps them apart (at
///         most 64 MiB and 128 bytes a tensor of them), the faults.
/// Errors: kOverBudget, kSourceChanged, kIo naming the file, kInterrupted. A bad number is none.
Result<ScanReport> scan(const Binding& binding, const checkpoint::TensorIndex& index,
                        io::ReadEngine& engine, memory::Ledger& ledger,
                        Progress* progress = nullptr);

}  // namespace lode::loader
