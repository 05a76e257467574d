#include "lode/prepared/source_stamp.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "lode/base/bytes.h"
#include "lode/checkpoint/input_file.h"
#include "lode/prepared/output_file.h"

namespace lode::prepared {
namespace {

constexpr std::uint64_t kPieceBytes = 256 * kKiB;

constexpr std::array<const char*, 20> kCompanions = {"config.json",
                                                     "generation_config.json",
                                                     "tokenizer.json",
                                                     "tokenizer_config.json",
                                                     "tokenizer.model",
                                                     "special_tokens_map.json",
                                                     "added_tokens.json",
                                                     "vocab.json",
                                                     "vocab.txt",
                                                     "merges.txt",
                                                     "chat_template.jinja",
                                                     "chat_template.json",
                                                     "hf_quant_config.json",
                                                     "preprocessor_config.json",
                                                     "README.md",
                                                     "LICENSE",
                                                     "LICENSE.txt",
                                                     "LICENSE.md",
                                                     "NOTICE",
                                                     "USAGE_POLICY"};

// Reads `bytes` of a file, piece by piece.
template <class Take>
Status read_pieces(const checkpoint::InputFile& file, std::uint64_t bytes, Take take) {
  std::vector<std::byte> piece(std::min(bytes, kPieceBytes));
  for (std::uint64_t at = 0; at < bytes; at += kPieceBytes) {
    const auto part = std::span(piece).first(std::min(bytes - at, kPieceBytes));
    LODE_TRY_STATUS(file.read_into(at, part));
    LODE_TRY_STATUS(take(at, part));
  }
  return {};
}

void add_text(io::Sha256& hash, std::string_view text) {
  const std::uint64_t size = text.size();
  hash.add(std::as_bytes(std::span(&size, 1)));
  hash.add(std::as_bytes(std::span(text)));
}

Result<Companion> copy_companion(io::SystemCalls& calls, const std::filesystem::path& from,
                                 const std::filesystem::path& to) {
  LODE_TRY(const checkpoint::InputFile source, checkpoint::InputFile::open(from));
  LODE_TRY(OutputFile file, OutputFile::open(calls, to.string(), OutputFile::Way::kBuffered));
  LODE_TRY_STATUS(file.truncate(0));
  io::Sha256 hash;
  Companion companion;
  companion.name = from.filename().string();
  companion.bytes = source.identity().bytes;
  LODE_TRY_STATUS(
      read_pieces(source, companion.bytes, [&](std::uint64_t at, std::span<const std::byte> piece) {
        hash.add(piece);
        return file.write(piece, at);
      }));
  LODE_TRY_STATUS(file.sync_data());
  companion.sha256 = hash.finish();
  return companion;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code absent;
  return std::filesystem::is_regular_file(path, absent);
}

}  // namespace

Result<std::vector<SourceShard>> stamp_sources(const checkpoint::TensorIndex& index) {
  std::vector<SourceShard> sources;
  for (const checkpoint::Shard& shard : index.shards()) {
    LODE_TRY_STATUS(checkpoint::check_unchanged(shard.path, shard.identity));
    auto file = checkpoint::InputFile::open(shard.path);
    if (!file || file->identity() != shard.identity) {
      return Error{.code = Code::kSourceChanged,
                   .thing = shard.path,
                   .wanted = "the file that was opened, unchanged",
                   .found = file ? "another one" : file.error().found};
    }
    io::Sha256 hash;
    LODE_TRY_STATUS(read_pieces(*file, shard.data_offset,
                                [&](std::uint64_t, std::span<const std::byte> piece) -> Status {
                                  hash.add(piece);
                                  return {};
                                }));
    sources.push_back({shard.name, shard.identity.bytes, shard.identity.mtime_ns, hash.finish()});
  }
  return sources;
}

Fingerprint fingerprint_of(const Manifest& manifest, const Index& index) {
  Manifest settings = manifest;
  settings.sources.clear();
  settings.companions.clear();
  settings.index_bytes = 0;
  settings.root_sha256 = {};
  Index plan = index;
  std::fill(plan.chunk_crcs.begin(), plan.chunk_crcs.end(), 0U);
  io::Sha256 what;
  add_text(what, encode(settings));
  what.add(encode(plan));
  io::Sha256 sources;
  io::Sha256 times;
  for (const SourceShard& source : manifest.sources) {
    add_text(sources, source.name);
    sources.add(std::as_bytes(std::span(&source.bytes, 1)));
    sources.add(source.header_sha256);
    times.add(std::as_bytes(std::span(&source.mtime_ns, 1)));
  }
  return {what.finish(), sources.finish(), times.finish()};
}

bool same_sources(const std::vector<SourceShard>& a, const std::vector<SourceShard>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const SourceShard& x, const SourceShard& y) {
        return x.name == y.name && x.bytes == y.bytes && x.header_sha256 == y.header_sha256;
      });
}

Result<std::vector<Companion>> copy_companions(io::SystemCalls& calls,
                                               const std::filesystem::path& from,
                                               const std::filesystem::path& to) {
  std::vector<Companion> companions;
  for (const char* name : kCompanions) {
    if (!is_there(from / name)) continue;
    LODE_TRY(Companion companion, copy_companion(calls, from / name, to / name));
    companions.push_back(std::move(companion));
  }
  return companions;
}

std::uint64_t companion_bytes(const std::filesystem::path& from) {
  std::uint64_t bytes = 0;
  for (const char* name : kCompanions) {
    if (is_there(from / name)) bytes += std::filesystem::file_size(from / name);
  }
  return bytes;
}

}  // namespace lode::prepared
