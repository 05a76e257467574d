#pragma once

#include <cstdint>
#include <string>

#include "lode/base/result.h"
#include "lode/loader/binding.h"
#include "lode/loader/progress.h"
#include "lode/memory/ledger.h"
#include "lode/prepared/checkpoint.h"

namespace lode::prepared {

/// What lies at a byte of a section, for people: "experts of layer 3: expert 5, down, rows 16 to
/// 31, k 128 to 255", "query of layer 0: ...", "padding of layer 0".
std::string what_lies_at(const Index& index, const Section& section, std::uint64_t offset_bytes);

/// Makes everything again from the checkpoint that it was prepared from, keeps nothing of it, and
/// compares the sums with those of the index. `plan` is that of a load of the source with the
/// settings of the manifest. `progress` may be null.
///
/// Memory: that of loader::stream.
/// Errors: kCheckFailed naming the first section, tensor or expert, and coordinates that differ;
///         kLayoutMismatch where the plan has other stages; those of loader::stream.
Status compare_with(const Checkpoint& checkpoint, const loader::LoadPlan& plan,
                    const loader::Binding& binding, memory::Ledger& ledger,
                    loader::Progress* progress = nullptr);

}  // namespace lode::prepared
