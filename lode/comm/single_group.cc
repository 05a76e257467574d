#include <utility>

#include "lode/comm/fate.h"
#include "lode/comm/group.h"

namespace lode::comm {
namespace {

class SingleGroup final : public Group {
 public:
  explicit SingleGroup(std::shared_ptr<Fate> fate)
      : Group(0, {0}, GroupOptions{}.deadline), fate_(std::move(fate)) {}

  Status health() override { return fate_->status(); }

 private:
  Status run(const Exchange&) override { return fate_->status(); }
  Error raise(Error error) override { return fate_->raise(std::move(error)); }

  // Group lets no message to oneself through, and there is nobody else.
  Result<Transfer> start_send(std::size_t, std::uint32_t, std::span<const std::byte>) override {
    return Transfer();
  }
  Result<Transfer> start_receive(std::size_t, std::uint32_t, std::span<std::byte>) override {
    return Transfer();
  }

  Result<std::unique_ptr<Group>> make_duplicate() override {
    LODE_TRY_STATUS(fate_->status());
    return std::unique_ptr<Group>(std::make_unique<SingleGroup>(fate_));
  }

  std::shared_ptr<Fate> fate_;
};

}  // namespace

std::unique_ptr<Group> make_single_group() {
  return std::make_unique<SingleGroup>(std::make_shared<Fate>());
}

}  // namespace lode::comm
