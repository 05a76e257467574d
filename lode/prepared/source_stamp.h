#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/io/system_calls.h"
#include "lode/prepared/format.h"
#include "lode/prepared/journal.h"
#include "lode/prepared/manifest.h"

namespace lode::prepared {

/// The shards of a checkpoint as they are now, with the SHA-256 of their headers.
/// Errors: kSourceChanged where a shard is no longer the one that was indexed; kIo.
Result<std::vector<SourceShard>> stamp_sources(const checkpoint::TensorIndex& index);

/// What a preparation of these sources, made to this manifest and index, goes on with. Sums, sizes
/// and companions do not count: they are not known yet.
Fingerprint fingerprint_of(const Manifest& manifest, const Index& index);

/// Whether a manifest is of the same sources, whatever the times of their files.
bool same_sources(const std::vector<SourceShard>& a, const std::vector<SourceShard>& b);

/// Copies what belongs to a model beside its weights (config.json, tokenizer.json, chat templates,
/// licences) from one folder to the other.
/// Errors: kIo, kNoSpace, kInvalidSource.
/// Memory: 1 MiB.
Result<std::vector<Companion>> copy_companions(io::SystemCalls& calls,
                                               const std::filesystem::path& from,
                                               const std::filesystem::path& to);

/// Bytes that copy_companions would write.
std::uint64_t companion_bytes(const std::filesystem::path& from);

}  // namespace lode::prepared
