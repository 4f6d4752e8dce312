// A network namespace of the test's own: its agents, ports and addresses are nobody else's.
#pragma once

#include <string>

namespace verbena::support {

// Moves this process into a new network namespace with lo up, and makes agents that it starts short-lived. To
// be called before there are threads. Ends the process with a sentence if the machine doesn't allow it.
void isolate();

// Runs a command of iproute2 in this namespace: ip("link add a type veth peer name b"). False if it failed.
bool ip(const std::string& arguments);

}  // namespace verbena::support
