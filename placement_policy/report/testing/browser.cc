#include "placement_policy/report/testing/browser.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr std::string_view kBrowser = "chromium-headless-shell";

std::string TempFolder() {
  const char* const folder = std::getenv("TEST_TMPDIR");
  GANTRY_CHECK(folder != nullptr) << "run this through bazel";
  return folder;
}

struct CommandOutput {
  int exit_code = -1;
  std::string out;
};

// What a shell command writes to standard output. No word of ours needs quoting.
absl::StatusOr<CommandOutput> RunShell(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return Internal("cannot run: ", command);
  CommandOutput output;
  std::array<char, 65536> buffer{};
  while (true) {
    const size_t read = std::fread(buffer.data(), 1, buffer.size(), pipe);
    if (read == 0) break;
    output.out.append(buffer.data(), read);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) output.exit_code = WEXITSTATUS(status);
  return output;
}

absl::Status ExpectProgram(std::string_view name) {
  GANTRY_ASSIGN_OR_RETURN(const CommandOutput found, RunShell(StrCat("command -v ", name)));
  if (found.exit_code == 0) return absl::OkStatus();
  return Unavailable("'", name, "' is not installed; ./dev setup installs it");
}

// Lines of the browser's own log about the page.
std::string ConsoleLines(const std::string& log) {
  std::istringstream lines(log);
  std::string console;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(":CONSOLE") != std::string::npos) console += line + "\n";
  }
  return console;
}

class Browser {
 public:
  Browser(std::string page, std::string work) : page_(std::move(page)), work_(std::move(work)) {}

  // `what` are the options that say what to print.
  absl::StatusOr<CommandOutput> Run(const std::string& what) const {
    const std::string profile = work_ + ".profile";
    std::filesystem::remove_all(profile);
    GANTRY_ASSIGN_OR_RETURN(
        const CommandOutput output,
        RunShell(StrCat("HOME=", TempFolder(), " timeout 120 ", kBrowser,
                        " --headless --no-sandbox --disable-gpu --enable-logging=stderr "
                        "--hide-scrollbars --window-size=1280,1800 --virtual-time-budget=10000 "
                        "--user-data-dir=",
                        profile, " ", what, " file://", page_, " 2>", log_path())));
    if (output.exit_code == 0) return output;
    return Unavailable(kBrowser, " ended with ", output.exit_code, ": ", Log());
  }
  std::string Log() const {
    PosixFileCalls files;
    const absl::StatusOr<std::string> log = ReadFileToString(files, log_path(), Bytes(1 << 24));
    return log.ok() ? *log : std::string();
  }

 private:
  std::string log_path() const { return work_ + ".log"; }

  const std::string page_;
  const std::string work_;
};

// Of a PNG file: how many colours, and the share of the commonest.
absl::Status CountColours(const std::string& picture, OpenedPage& page) {
  const char* const runfiles = std::getenv("TEST_SRCDIR");
  const char* const workspace = std::getenv("TEST_WORKSPACE");
  GANTRY_CHECK(runfiles != nullptr && workspace != nullptr) << "run this through bazel";
  GANTRY_ASSIGN_OR_RETURN(
      const CommandOutput counted,
      RunShell(StrCat("python3 ", runfiles, "/", workspace,
                      "/placement_policy/report/testing/png_colours.py ", picture)));
  std::istringstream numbers(counted.out);
  if (counted.exit_code != 0 || !(numbers >> page.colours >> page.commonest)) {
    return Internal("png_colours.py ended with ", counted.exit_code, ": ", counted.out);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenedPage> OpenInBrowser(const std::string& name, std::string_view html,
                                         Picture picture) {
  GANTRY_RETURN_IF_ERROR(ExpectProgram(kBrowser));
  GANTRY_RETURN_IF_ERROR(ExpectProgram("python3"));
  const std::string work = StrCat(TempFolder(), "/", name);
  const std::string path = work + ".html";
  PosixFileCalls files;
  GANTRY_RETURN_IF_ERROR(WriteFileAtomically(files, path, std::as_bytes(std::span(html))));
  const Browser browser(path, work);
  OpenedPage page;
  GANTRY_ASSIGN_OR_RETURN(const CommandOutput dumped, browser.Run("--dump-dom"));
  page.dom = dumped.out;
  page.console = ConsoleLines(browser.Log());
  if (picture == Picture::kNone) return page;
  const std::string shot = work + ".png";
  GANTRY_RETURN_IF_ERROR(browser.Run(StrCat("--screenshot=", shot)).status());
  GANTRY_RETURN_IF_ERROR(CountColours(shot, page));
  return page;
}

std::string RootAttribute(const OpenedPage& page, const std::string& name) {
  const size_t tag = page.dom.find("<html");
  if (tag == std::string::npos) return "";
  const std::string root = page.dom.substr(tag, page.dom.find('>', tag) - tag);
  const std::string key = StrCat(" ", name, "=\"");
  const size_t at = root.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size();
  return root.substr(begin, root.find('"', begin) - begin);
}

std::string WithScript(std::string_view html, std::string_view script) {
  const size_t end = html.rfind("</body>");
  GANTRY_CHECK(end != std::string_view::npos);
  return StrCat(html.substr(0, end), "<script>", script, "</script>", html.substr(end));
}

}  // namespace gantry
