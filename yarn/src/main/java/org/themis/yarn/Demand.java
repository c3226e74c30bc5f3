// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.server.scheduler.SchedulerRequestKey;

/**
 * What an application asks for under one priority and allocation request id: containers of one
 * kind. YARN keeps one {@code AppPlacementAllocator} for each.
 */
record Demand(ApplicationId app, SchedulerRequestKey key) {}
