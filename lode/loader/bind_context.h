#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/quant_config.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/families/family.h"

// What the parts of bind() share; nobody else includes this.

namespace lode::loader {

/// Which tensors of an index have found their role.
class TensorUse {
 public:
  explicit TensorUse(const checkpoint::TensorIndex& index)
      : index_(index), taken_(index.tensors().size(), false) {}

  /// Errors: kInvalidSource naming a tensor that serves two roles.
  Status take(const checkpoint::TensorRecord& tensor);

  bool is_taken(std::size_t position) const { return taken_[position]; }

 private:
  const checkpoint::TensorIndex& index_;
  std::vector<bool> taken_;
};

/// Remarks for people; those that differ only in their numbers become one line.
class NoteBook {
 public:
  void add(std::string sentence);
  std::vector<std::string> lines() const;

 private:
  struct Entry {
    std::string first;
    std::uint64_t count = 0;
  };
  std::map<std::string, Entry, std::less<>> entries_;  // by sentence without numbers
};

struct BindContext {
  const checkpoint::TensorIndex& index;
  const families::Family& family;
  const families::ModelSpec& spec;
  const checkpoint::QuantConfig& quant;
  std::string prefix;       // "model.", "model.language_model.", ...
  std::string head_module;  // "lm_head" with whatever stands before it
  TensorUse use;
  NoteBook notes;
};

/// Finds out what stands before the names of this checkpoint.
BindContext make_context(const checkpoint::TensorIndex& index, const families::Family& family,
                         const families::ModelSpec& spec, const checkpoint::QuantConfig& quant);

/// Full name of a role's module in layer `layer` and expert `expert`, as far as it has them.
std::string module_name(const BindContext& context, families::Role role, std::uint32_t layer = 0,
                        std::uint32_t expert = 0);

/// A tensor that is not as it must be: "tensor N: want W, found BF16 [2, 3] (shard)".
Error misfit(const checkpoint::TensorIndex& index, const checkpoint::TensorRecord& tensor,
             std::string wanted, std::string hint = {});

/// The error of another room with the file of its tensor, where it says none.
Error with_file(const checkpoint::TensorIndex& index, Error error);

}  // namespace lode::loader
