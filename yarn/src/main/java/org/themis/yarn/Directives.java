// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.thirdparty.protobuf.CodedInputStream;
import org.apache.hadoop.thirdparty.protobuf.WireFormat;

/**
 * What the core decided: {@code themis.v1.Directives} (bridge/themis.proto). The whole truth each
 * time; fields that this reader does not know are passed over.
 */
final class Directives {
  /** A lease of a gang that has not started: so many GPUs on each node, or any nodes but those. */
  record Grant(long lease, String job, boolean anywhere, List<String> nodes, List<Integer> gpus) {}

  /** A lease that ended under a running gang; {@code due}: its grace period is over. */
  record Reclaim(long lease, String job, boolean due, String why) {}

  static final Directives NONE = new Directives();

  long seq;
  int tickMs;
  final Map<String, Grant> grants = new HashMap<>(); // by job
  final List<Reclaim> reclaims = new ArrayList<>();
  final Map<String, String> waits = new HashMap<>(); // a sentence by job

  static Directives parse(byte[] message) throws IOException {
    Directives d = new Directives();
    CodedInputStream in = CodedInputStream.newInstance(message);
    for (int tag = in.readTag(); tag != 0; tag = in.readTag()) {
      switch (WireFormat.getTagFieldNumber(tag)) {
        case 1 -> d.seq = in.readUInt64();
        case 2 -> d.tickMs = in.readUInt32();
        case 4 -> {
          Grant g = grant(in.readByteArray());
          d.grants.put(g.job, g);
        }
        case 5 -> d.reclaims.add(reclaim(in.readByteArray()));
        case 6 -> d.readWait(in.readByteArray());
        default -> in.skipField(tag);
      }
    }
    return d;
  }

  private static Grant grant(byte[] message) throws IOException {
    long lease = 0;
    String job = "";
    boolean anywhere = false;
    List<String> nodes = new ArrayList<>();
    List<Integer> gpus = new ArrayList<>();
    CodedInputStream in = CodedInputStream.newInstance(message);
    for (int tag = in.readTag(); tag != 0; tag = in.readTag()) {
      switch (WireFormat.getTagFieldNumber(tag)) {
        case 1 -> lease = in.readUInt64();
        case 2 -> job = in.readStringRequireUtf8();
        case 4 -> anywhere = in.readBool();
        case 5 -> nodes.add(in.readStringRequireUtf8());
        case 6 -> {
          int end = in.pushLimit(in.readRawVarint32());
          while (in.getBytesUntilLimit() > 0) {
            gpus.add(in.readUInt32());
          }
          in.popLimit(end);
        }
        default -> in.skipField(tag);
      }
    }
    return new Grant(lease, job, anywhere, nodes, gpus);
  }

  private static Reclaim reclaim(byte[] message) throws IOException {
    long lease = 0;
    String job = "";
    boolean due = false;
    String why = "";
    CodedInputStream in = CodedInputStream.newInstance(message);
    for (int tag = in.readTag(); tag != 0; tag = in.readTag()) {
      switch (WireFormat.getTagFieldNumber(tag)) {
        case 1 -> lease = in.readUInt64();
        case 2 -> job = in.readStringRequireUtf8();
        case 3 -> due = in.readBool();
        case 4 -> why = in.readStringRequireUtf8();
        default -> in.skipField(tag);
      }
    }
    return new Reclaim(lease, job, due, why);
  }

  private void readWait(byte[] message) throws IOException {
    String job = "";
    String why = "";
    CodedInputStream in = CodedInputStream.newInstance(message);
    for (int tag = in.readTag(); tag != 0; tag = in.readTag()) {
      switch (WireFormat.getTagFieldNumber(tag)) {
        case 1 -> job = in.readStringRequireUtf8();
        case 2 -> why = in.readStringRequireUtf8();
        default -> in.skipField(tag);
      }
    }
    waits.put(job, why);
  }
}
