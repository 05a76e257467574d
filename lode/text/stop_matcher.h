#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lode::text {

/// Looks for stop strings in a stream of text. Of several the one whose match ends first wins,
/// among these the one that begins first. Text that may still become a stop string waits; how the
/// text was cut does not matter.
class StopMatcher {
 public:
  /// Empty stop strings never match. `include_stop`: the text ends with the stop string instead of
  /// before it.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  /// The text that may go out now. After a stop nothing goes out any more.
  std::string push(std::string_view text);
  /// The text that was waiting, at the end of the stream.
  std::string flush();

  bool stopped() const noexcept { return stopped_by_ != kNone; }
  /// The stop string that was found; empty before.
  std::string_view stopped_by() const noexcept;

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  // How much of one stop string the text ends with (Knuth, Morris, Pratt).
  struct Needle {
    std::string text;
    std::vector<std::size_t> fallback;  // longest proper border of each beginning of `text`
    std::size_t matched = 0;
  };
  void advance(Needle& needle, char byte) const noexcept;
  std::size_t longest_complete() const noexcept;
  std::string stop_at(std::size_t needle);

  std::vector<Needle> needles_;
  bool include_stop_;
  std::size_t stopped_by_ = kNone;
  std::string waiting_;
};

}  // namespace lode::text
