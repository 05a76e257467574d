#pragma once

namespace lode::cli {

/// From here on, a page of a mapped file that cannot be had (the file was cut off underneath, or
/// its disk failed) ends the process with the exit status of kSourceChanged and one line on
/// standard error that names file and offset. Any other bus error ends it as it would have.
void install_fault_handler() noexcept;

}  // namespace lode::cli
