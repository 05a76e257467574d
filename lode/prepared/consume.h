#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/io/system_calls.h"
#include "lode/prepared/format.h"
#include "lode/prepared/journal.h"
#include "lode/prepared/output_file.h"

namespace lode::prepared {

struct Input;

/// A note in the source's folder that its weights have been given to another one.
inline constexpr std::string_view kGivenAwayFile = "lode-consumed.json";

/// The output is brought to the disk so often at least where sources are consumed: what a unit was
/// made from stays until then.
inline constexpr std::uint64_t kConsumedUnitBytes = std::uint64_t{8} << 20;

/// Errors: kInvalidSource where the folder's weights were given to another folder than `to`.
Status check_not_given_away(const std::filesystem::path& source, const std::filesystem::path& to);

/// Gives the disk blocks of the sources back, stage by stage, behind what is on the disk of the
/// output. Never a header, never a block that a later stage needs a byte of.
class Consumer {
 public:
  Consumer() = default;  // gives nothing back

  /// Nobody else can consume the same sources while this one lives.
  /// Errors: kUsage for a shard that is a link or has several names: others may need it; kIo where
  ///         another one consumes them; those of check_not_given_away.
  static Result<Consumer> plan(const Input& input, const std::filesystem::path& out,
                               io::SystemCalls& calls);
  /// The journal that is told before blocks are given back.
  void set_journal(Journal& journal) { journal_ = &journal; }

  /// Told how many chunks of the output are on the disk: gives back what they were made from.
  /// Errors: kIo, kNoSpace.
  Status give_back(const Index& index, std::uint64_t num_chunks);

  /// The most that the output will take beyond what has been given back by then, where the output
  /// is on the disk unit by unit.
  std::uint64_t most_needed_bytes(const Index& index, std::uint64_t num_chunks,
                                  std::uint64_t unit_bytes) const;

  bool is_at_work() const noexcept { return calls_ != nullptr; }
  std::uint64_t freed_bytes() const noexcept { return freed_bytes_; }
  std::uint64_t held_bytes() const noexcept { return ranges_.capacity() * sizeof(Range); }

 private:
  struct Range {
    std::uint32_t shard = 0;
    std::uint32_t stage_idx = 0;  // the last that needs it
    std::uint64_t begin_bytes = 0;
    std::uint64_t end_bytes = 0;
  };

  Status lock_sources();
  Status sign(const std::filesystem::path& source) const;
  Status punch_stage(std::uint32_t stage_idx);
  Range whole_blocks_around(std::size_t range_idx) const;

  io::SystemCalls* calls_ = nullptr;
  std::optional<OutputFile> lock_;  // the first shard
  Journal* journal_ = nullptr;
  std::filesystem::path source_;
  std::filesystem::path out_;
  std::vector<std::string> shards_;
  std::vector<Range> ranges_;  // by shard and place
  std::uint32_t next_stage_ = 0;
  bool signed_ = false;
  std::uint64_t freed_bytes_ = 0;
};

}  // namespace lode::prepared
