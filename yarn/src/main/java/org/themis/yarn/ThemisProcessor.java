// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.io.IOException;
import java.util.Collection;
import java.util.List;
import org.apache.hadoop.yarn.ams.ApplicationMasterServiceContext;
import org.apache.hadoop.yarn.ams.ApplicationMasterServiceProcessor;
import org.apache.hadoop.yarn.api.protocolrecords.AllocateRequest;
import org.apache.hadoop.yarn.api.protocolrecords.AllocateResponse;
import org.apache.hadoop.yarn.api.protocolrecords.FinishApplicationMasterRequest;
import org.apache.hadoop.yarn.api.protocolrecords.FinishApplicationMasterResponse;
import org.apache.hadoop.yarn.api.protocolrecords.RegisterApplicationMasterRequest;
import org.apache.hadoop.yarn.api.protocolrecords.RegisterApplicationMasterResponse;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptId;
import org.apache.hadoop.yarn.api.records.ExecutionType;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.api.records.SchedulingRequest;
import org.apache.hadoop.yarn.exceptions.YarnException;
import org.apache.hadoop.yarn.server.resourcemanager.RMContext;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Speaks with application masters: one of {@code
 * yarn.resourcemanager.application-master-service.processors}. Tells them at each heartbeat what
 * they should give back, and refuses asks for GPUs that would get around leases, with a sentence for
 * their owner. Called by the ResourceManager's RPC handlers, for many applications at a time.
 */
public final class ThemisProcessor implements ApplicationMasterServiceProcessor {
  private static final Logger LOG = LoggerFactory.getLogger(ThemisProcessor.class);

  private RMContext context;
  private ApplicationMasterServiceProcessor next;

  @Override
  public void init(
      ApplicationMasterServiceContext amsContext, ApplicationMasterServiceProcessor nextProcessor) {
    context = (RMContext) amsContext;
    next = nextProcessor;
  }

  /** Without our scheduler, malformed tags are found here. */
  @Override
  public void registerApplicationMaster(
      ApplicationAttemptId attempt,
      RegisterApplicationMasterRequest request,
      RegisterApplicationMasterResponse response)
      throws IOException, YarnException {
    String problem = null;
    try {
      if (!(context.getScheduler() instanceof ThemisCapacityScheduler)) {
        RMApp app = context.getRMApps().get(attempt.getApplicationId());
        problem = app == null ? null : Tags.of(app.getApplicationTags()).check();
      }
    } catch (Throwable e) {
      LOG.error("themis: the tags of {} were not checked", attempt, e);
    }
    if (problem != null) {
      throw new YarnException(problem);
    }
    next.registerApplicationMaster(attempt, request, response);
  }

  @Override
  public void allocate(
      ApplicationAttemptId attempt, AllocateRequest request, AllocateResponse response)
      throws YarnException {
    String problem = null;
    try {
      problem = LeaseTable.current().governs() ? bypass(attempt, request) : null;
    } catch (Throwable e) {
      LOG.error("themis: what {} asks for was not checked", attempt, e);
    }
    if (problem != null) {
      throw new YarnException(problem);
    }
    next.allocate(attempt, request, response);
    try {
      Reclaims.tell(attempt, response);
    } catch (Throwable e) {
      LOG.error("themis: {} was not told of the end of its lease", attempt, e);
    }
  }

  /** How the request would get around leases, null if it does not. */
  private String bypass(ApplicationAttemptId attempt, AllocateRequest request) {
    for (ResourceRequest r : list(request.getAskList())) {
      if (Gpus.in(r.getCapability()) == 0 || r.getNumContainers() == 0) {
        continue;
      }
      if (r.getExecutionTypeRequest() != null
          && r.getExecutionTypeRequest().getExecutionType() == ExecutionType.OPPORTUNISTIC) {
        return "themis: containers with GPUs are never opportunistic; ask for guaranteed ones";
      }
      RMApp app = context.getRMApps().get(attempt.getApplicationId());
      if (app != null && ThemisCapacityScheduler.placesItself(app)) {
        return ThemisCapacityScheduler.PLACES_ITSELF;
      }
    }
    for (SchedulingRequest r : list(request.getSchedulingRequests())) {
      if (r.getResourceSizing() != null && Gpus.in(r.getResourceSizing().getResources()) > 0) {
        return "themis: GPUs cannot be asked for by SchedulingRequest here; ask by ResourceRequest";
      }
    }
    return null;
  }

  private static <T> Collection<T> list(List<T> maybe) {
    return maybe == null ? List.of() : maybe;
  }

  @Override
  public void finishApplicationMaster(
      ApplicationAttemptId attempt,
      FinishApplicationMasterRequest request,
      FinishApplicationMasterResponse response) {
    next.finishApplicationMaster(attempt, request, response);
  }
}
