// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptId;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;

/** An application that asks for GPUs, or did. Of the policy's thread alone. */
final class Application {
  final ApplicationId id;
  final RMApp app;
  final Tags tags;
  final List<Gang> gangs = new ArrayList<>(); // in the order in which they came
  List<RMContainer> reservations = List.of(); // with GPUs
  ApplicationAttemptId attempt; // null once it is over
  String queue = "";
  double share;
  boolean master; // its application master has not started yet
  private int made;

  Application(RMApp app) {
    this.id = app.getApplicationId();
    this.app = app;
    this.tags = Tags.of(app.getApplicationTags());
  }

  /** A gang of the demand, named as a task of a Slurm array is: the application and a number. */
  Gang add(Demand demand, long now) {
    Gang g = new Gang(id + "_" + ++made, demand, master, now);
    gangs.add(g);
    return g;
  }

  /**
   * What of its progress the core may take as that of a gang: an application reports one number,
   * which says something of a gang only if it has had no other. Whole hundredths, 0 if unknown.
   */
  double progress(Gang g) {
    if (made > 1 || g.state != Gang.State.RUNNING) {
      return 0;
    }
    return Math.floor(Math.min(Math.max(app.getProgress(), 0), 1) * 100) / 100;
  }
}
