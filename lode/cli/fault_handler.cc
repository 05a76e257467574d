#include "lode/cli/fault_handler.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "lode/base/result.h"
#include "lode/memory/mapped_table.h"

namespace lode::cli {
namespace {

// Puts a line together without memory of the heap: a signal may have come in the middle of malloc.
class Line {
 public:
  void add(std::string_view text) noexcept {
    const std::size_t count = std::min(text.size(), bytes_.size() - size_);
    std::copy_n(text.begin(), count, bytes_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += count;
  }
  void add(std::uint64_t number) noexcept {
    std::array<char, 20> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    add({digits.data(), static_cast<std::size_t>(end - digits.data())});
  }
  void write_to(int descriptor) const noexcept {
    const ssize_t written = ::write(descriptor, bytes_.data(), size_);
    static_cast<void>(written);  // there is nobody left to tell
  }

 private:
  std::array<char, 512> bytes_{};
  std::size_t size_ = 0;
};

int exit_status = 0;  // of kSourceChanged, looked up while no signal is about

void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  memory::MappedPlace place;
  if (!memory::find_mapped(info->si_addr, place)) {
    ::signal(signal, SIG_DFL);  // on return it happens again, and ends the process
    return;
  }
  Line line;
  line.add("lode: ");
  line.add(place.path.data());
  line.add(": want its byte ");
  line.add(place.offset_bytes);
  line.add(
      ", found the file cut off or its disk failing while it was in use; `lode verify` says "
      "what is damaged\n");
  line.write_to(STDERR_FILENO);
  ::_exit(exit_status);
}

}  // namespace

void install_fault_handler() noexcept {
  exit_status = info(Code::kSourceChanged).exit_status;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace lode::cli
