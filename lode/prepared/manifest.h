#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/io/checksum.h"
#include "lode/targets/target.h"

namespace lode::prepared {

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kIndexFile = "index.bin";
inline constexpr std::uint64_t kMostManifestBytes = 64ULL << 20;

/// The order of bytes that a checkpoint was prepared for. Another one is another checkpoint.
struct LayoutId {
  std::string kernel_family;                 // "panels"
  std::uint32_t version = 0;                 // of its drawing in kernels/panel.h and layout/
  std::uint32_t panel_rows = 0;              // rows side by side
  std::uint32_t super_block_k = 0;           // k under one set of scale lines
  std::uint32_t line_bytes = 0;              // that everything is padded to
  std::uint32_t record_alignment_bytes = 0;  // of an expert
  std::string gate_up;                       // "alternate": a gate panel, then its up panel

  friend bool operator==(const LayoutId&, const LayoutId&) = default;
};

/// The layout that this program makes and runs on target cpu.
LayoutId cpu_layout();
/// That of the experts for a GPU engine: the target's name, and the version of its drawings in
/// layout/ and targets/.
LayoutId engine_layout(targets::Target target);

/// A shard that the checkpoint was made from, as it was then.
struct SourceShard {
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  io::Sha256::Digest header_sha256{};  // of its first bytes, up to the first tensor's

  friend bool operator==(const SourceShard&, const SourceShard&) = default;
};

/// A file of the folder with what it must contain: config.json, tokenizer.json, ...
struct Companion {
  std::string name;
  std::uint64_t bytes = 0;
  io::Sha256::Digest sha256{};

  friend bool operator==(const Companion&, const Companion&) = default;
};

/// manifest.json: small, for people too, and written last.
struct Manifest {
  std::uint32_t format_version = 0;
  std::string target;  // "cpu", "marlin", ...
  LayoutId layout;
  std::string dense;               // what matrices outside the experts became: "as-stored", "int8"
  std::string family;              // "qwen3_moe"
  std::uint64_t weight_bytes = 0;  // of all slabs as mapped
  std::vector<SourceShard> sources;
  std::vector<Companion> companions;
  std::vector<std::uint64_t> data_file_bytes;  // of weights-00000.bin, ...
  std::uint64_t index_bytes = 0;
  io::Sha256::Digest root_sha256{};  // of index.bin, and so of the sums of all chunks

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// Text of manifest.json; its last member is a sum over all others.
std::string encode(const Manifest& manifest);

/// Errors: kInvalidSource naming the member for what is missing, of another kind, or not what the
///         sum says; kLayoutMismatch for another version of the format.
Result<Manifest> decode_manifest(std::string_view text);

/// Whether this program can run what the manifest describes.
/// Errors: kLayoutMismatch naming what differs, and the command that prepares it again.
Status check_runnable(const Manifest& manifest);

}  // namespace lode::prepared
