// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.yarn.api.protocolrecords.AllocateResponse;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptId;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.PreemptionContainer;
import org.apache.hadoop.yarn.api.records.PreemptionContract;
import org.apache.hadoop.yarn.api.records.PreemptionMessage;
import org.apache.hadoop.yarn.api.records.PreemptionResourceRequest;
import org.apache.hadoop.yarn.api.records.Priority;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.util.Records;

/**
 * What application masters are to be told of leases that end, by attempt: immutable, replaced by the
 * policy's thread and read by those that answer heartbeats. YARN itself says it once, and asks for
 * the least allocation instead of the GPUs that are meant; this is said at every heartbeat for as
 * long as it holds.
 */
final class Reclaims {
  /** Containers of one gang whose lease ends. */
  record Notice(List<ContainerId> containers, Priority priority, Resource each) {}

  private static volatile Map<ApplicationAttemptId, List<Notice>> current = Map.of();

  private Reclaims() {}

  static void publish(Map<ApplicationAttemptId, List<Notice>> notices) {
    current = Map.copyOf(notices);
  }

  /** Adds what there is to say to the answer to a heartbeat. */
  static void tell(ApplicationAttemptId attempt, AllocateResponse response) {
    List<Notice> notices = current.get(attempt);
    if (notices == null) {
      return;
    }
    PreemptionMessage message = response.getPreemptionMessage();
    if (message == null) {
      message = Records.newRecord(PreemptionMessage.class);
    }
    PreemptionContract stock = message.getContract();
    Set<PreemptionContainer> containers = new HashSet<>();
    if (stock != null) {
      containers.addAll(stock.getContainers());
    }
    List<PreemptionResourceRequest> requests = new ArrayList<>();
    for (Notice n : notices) {
      n.containers.forEach(id -> containers.add(PreemptionContainer.newInstance(id)));
      requests.add(
          PreemptionResourceRequest.newInstance(
              ResourceRequest.newInstance(
                  n.priority, ResourceRequest.ANY, n.each, n.containers.size())));
    }
    message.setContract(PreemptionContract.newInstance(requests, containers));
    response.setPreemptionMessage(message);
  }
}
