#include "lode/cli/program.h"

int main(int argc, char** argv) { return lode::cli::run_program(argc, argv); }
