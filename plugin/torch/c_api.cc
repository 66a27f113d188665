// The plug-in's C functions (gloo_bypass.h). No exception leaves them.
#include "collectives/c_table.h"
#include "plugin/torch/availability.h"
#include "plugin/torch/gloo_bypass.h"
#include "transport/base/c_text.h"
#include "transport/process/process_transport.h"

GLOO_BYPASS_VISIBLE int gloo_bypass_stats_json(char* buffer, size_t capacity) {
  return gloo_bypass::answerInC(buffer, capacity,
                                [] { return gloo_bypass::ProcessTransport::instance().countersJson(); });
}

GLOO_BYPASS_VISIBLE int gloo_bypass_available_json(char* buffer, size_t capacity) {
  return gloo_bypass::answerInC(buffer, capacity, gloo_bypass::availabilityJson);
}

GLOO_BYPASS_VISIBLE const gloo_bypass_collectives* gloo_bypass_collectives_v1(void) {
  return &gloo_bypass::collectives::cTable();
}
