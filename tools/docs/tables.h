#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lode::docs {

/// What the documents quote of the program itself, by the name that their marks use.
struct Print {
  std::string_view name;
  std::string (*text)();  // Markdown, ends with a line end
};
std::span<const Print> prints() noexcept;

/// Markdown tables and the help of the commands, one function an entry of `prints()`.
std::string format_rows();
std::string encoding_rows();
std::string layout_rows();
std::string code_rows();
std::string tag_rows();
std::string dialect_rows();
std::string family_rows();
std::string role_rows();
std::string target_rows();
std::string route_rows();
std::string engine_tensor_rows();
std::string transform_rows();
std::string upstream_rows();
std::string command_rows();
std::string command_help();

}  // namespace lode::docs
