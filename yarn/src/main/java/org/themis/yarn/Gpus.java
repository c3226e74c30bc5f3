// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceInformation;

/** Counts GPUs in a {@link Resource}. Any thread may call. */
final class Gpus {
  private Gpus() {}

  /** GPUs of a container, an ask or a node; 0 if the cluster has no such resource type. */
  static int in(Resource resource) {
    if (resource == null) {
      return 0;
    }
    for (ResourceInformation r : resource.getResources()) {
      if (ResourceInformation.GPU_URI.equals(r.getName())) {
        return (int) Math.min(r.getValue(), Integer.MAX_VALUE);
      }
    }
    return 0;
  }
}
