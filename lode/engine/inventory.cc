#include "lode/engine/inventory.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lode::engine {
namespace {

using families::Role;

std::uint64_t bytes_of(const loader::MatrixSource& matrix) {
  const formats::Encoding& encoding = matrix.encoding;
  const std::uint64_t code_bits = formats::info(encoding.element).bits;
  std::uint64_t bytes = (matrix.rows * matrix.k * code_bits + 7) / 8;
  if (encoding.has_scale) {
    const std::uint64_t scales =
        formats::scale_rows(encoding, matrix.rows) * formats::scale_columns(encoding, matrix.k);
    bytes += scales * formats::info(matrix.stored_scale_format).bits / 8;
  }
  if (encoding.tensor_scale != formats::TensorScale::kNone) bytes += sizeof(float);
  return bytes;
}

class Adder {
 public:
  void add(Role role, const loader::MatrixSource& matrix) {
    if (matrix.present) add(role, std::string(formats::name(matrix.encoding)), bytes_of(matrix));
  }
  void add(Role role, const loader::VectorSource& vector) {
    if (!vector.present) return;
    const formats::FormatInfo& format = formats::info(vector.format);
    add(role, std::string(format.name), vector.count * format.bits / 8);
  }
  void add(const loader::RoleSources& sources) {
    for (std::size_t i = 0; i < families::kNumRoles; ++i) {
      add(static_cast<Role>(i), sources.matrices[i]);
      add(static_cast<Role>(i), sources.vectors[i]);
    }
  }
  void add(const loader::ExpertSource& expert) {
    add(Role::kExpertGate, expert.gate);
    add(Role::kExpertUp, expert.up);
    add(Role::kExpertDown, expert.down);
    add(Role::kExpertGateBias, expert.gate_bias);
    add(Role::kExpertUpBias, expert.up_bias);
    add(Role::kExpertDownBias, expert.down_bias);
  }
  std::vector<RoleShare> shares() const {
    std::vector<RoleShare> out;
    for (const auto& [key, share] : shares_) out.push_back(share);
    return out;
  }

 private:
  void add(Role role, std::string format, std::uint64_t bytes) {
    RoleShare& share = shares_[{role, format}];
    share.role = role;
    share.format = std::move(format);
    share.num_weights += 1;
    share.bytes += bytes;
  }
  std::map<std::pair<Role, std::string>, RoleShare> shares_;
};

}  // namespace

std::vector<DtypeShare> dtype_shares(const checkpoint::TensorIndex& index) {
  std::map<std::string, DtypeShare, std::less<>> by_dtype;
  for (const checkpoint::TensorRecord& tensor : index.tensors()) {
    DtypeShare& share = by_dtype[std::string(tensor.dtype)];
    share.dtype = tensor.dtype;
    share.num_tensors += 1;
    share.bytes += tensor.bytes;
  }
  std::vector<DtypeShare> shares;
  shares.reserve(by_dtype.size());
  for (auto& [dtype, share] : by_dtype) shares.push_back(std::move(share));
  std::stable_sort(shares.begin(), shares.end(),
                   [](const DtypeShare& a, const DtypeShare& b) { return a.bytes > b.bytes; });
  return shares;
}

std::vector<RoleShare> role_shares(const loader::Binding& binding) {
  Adder adder;
  adder.add(binding.model);
  for (const loader::RoleSources& layer : binding.layers) adder.add(layer);
  for (const auto& experts : binding.experts) {
    for (const loader::ExpertSource& expert : experts) adder.add(expert);
  }
  return adder.shares();
}

}  // namespace lode::engine
