// The plug-in's C functions (gloo_bypass.h). No exception leaves them.
#include "plugin/torch/availability.h"
#include "plugin/torch/c_text.h"
#include "plugin/torch/gloo_bypass.h"
#include "transport/process/process_transport.h"

GLOO_BYPASS_VISIBLE int gloo_bypass_stats_json(char* buffer, size_t capacity) {
  return gloo_bypass::answerInC(buffer, capacity,
                                [] { return gloo_bypass::ProcessTransport::instance().countersJson(); });
}

GLOO_BYPASS_VISIBLE int gloo_bypass_available_json(char* buffer, size_t capacity) {
  return gloo_bypass::answerInC(buffer, capacity, gloo_bypass::availabilityJson);
}
