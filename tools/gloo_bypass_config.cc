// gloo_bypass_config: prints the table of settings, or the configuration that the environment gives.
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include "transport/process/environment.h"
#include "transport/process/settings.h"

int main(int argc, char** argv) {
  CLI::App app("Settings of gloo-bypass: all that GLOO_BYPASS_* variables can say, and what they say now");
  bool asMarkdown = false, asText = false, effective = false;
  app.add_flag("--markdown", asMarkdown, "the table as Markdown");
  app.add_flag("--text", asText, "the table as text (default)")->excludes("--markdown");
  app.add_flag("--effective", effective, "the configuration from the environment, checked")
      ->excludes("--markdown")
      ->excludes("--text");
  CLI11_PARSE(app, argc, argv);

  if (!effective) {
    std::fputs((asMarkdown ? gloo_bypass::settingsAsMarkdown() : gloo_bypass::settingsAsText()).c_str(), stdout);
    return 0;
  }
  const auto config = gloo_bypass::configurationFromEnvironment();
  if (!config) {
    std::fprintf(stderr, "gloo_bypass_config: %s\n", config.error().message.c_str());
    return 1;
  }
  std::fputs(gloo_bypass::configurationAsText(config.value()).c_str(), stdout);
  return 0;
}
