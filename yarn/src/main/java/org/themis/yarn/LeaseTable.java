// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.List;
import java.util.Map;
import org.apache.hadoop.yarn.api.records.NodeId;

/**
 * Which demands may start containers with GPUs, and where. A table is immutable and replaced as a
 * whole by the policy's thread; the places inside its leases count down.
 */
final class LeaseTable {
  /** Everything passes: no policy is at work, or it has no core. */
  static final LeaseTable OPEN = new LeaseTable(false, Map.of());

  private static final List<Lease> NONE = List.of();
  private static volatile LeaseTable current = OPEN;

  private final boolean governs;
  private final Map<Demand, List<Lease>> leases;

  private LeaseTable(boolean governs, Map<Demand, List<Lease>> leases) {
    this.governs = governs;
    this.leases = leases;
  }

  /** A table in which only these leases let GPU containers in. */
  static LeaseTable of(Map<Demand, List<Lease>> leases) {
    return new LeaseTable(true, Map.copyOf(leases));
  }

  static LeaseTable current() {
    return current;
  }

  static void publish(LeaseTable table) {
    current = table;
  }

  boolean governs() {
    return governs;
  }

  List<Lease> of(Demand demand) {
    return leases.getOrDefault(demand, NONE);
  }

  /** Whether any container of the demand may start anywhere. Any thread. */
  boolean open(Demand demand) {
    for (Lease lease : of(demand)) {
      if (lease.open()) {
        return true;
      }
    }
    return false;
  }

  /** Whether a container with so many GPUs may start on the node. Any thread. */
  boolean admits(Demand demand, NodeId node, int gpus) {
    if (!governs) {
      return true;
    }
    for (Lease lease : of(demand)) {
      if (lease.admits(node, gpus)) {
        return true;
      }
    }
    return false;
  }

  /** Counts off a container that was allocated. Any thread. */
  void take(Demand demand, NodeId node, int gpus) {
    for (Lease lease : of(demand)) {
      if (lease.take(node, gpus)) {
        return;
      }
    }
  }
}
