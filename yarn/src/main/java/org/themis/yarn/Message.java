// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import org.apache.hadoop.thirdparty.protobuf.CodedOutputStream;

/**
 * Encodes a protobuf message field by field, with the runtime that YARN itself brings along. Fields
 * that are zero or empty are left out, as proto3 does. Not safe for concurrent use.
 */
final class Message {
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream(256);
  private final CodedOutputStream out = CodedOutputStream.newInstance(bytes, 64);

  Message put(int field, String value) throws IOException {
    if (!value.isEmpty()) {
      out.writeString(field, value);
    }
    return this;
  }

  Message put(int field, long value) throws IOException {
    if (value != 0) {
      out.writeUInt64(field, value);
    }
    return this;
  }

  /** An entry of a repeated number, which may be zero. */
  Message add(int field, long value) throws IOException {
    out.writeUInt64(field, value);
    return this;
  }

  Message put(int field, boolean value) throws IOException {
    if (value) {
      out.writeBool(field, true);
    }
    return this;
  }

  Message put(int field, double value) throws IOException {
    if (value != 0) {
      out.writeDouble(field, value);
    }
    return this;
  }

  /** One entry of a repeated message field; it is written even if it is empty. */
  Message put(int field, Message value) throws IOException {
    out.writeByteArray(field, value.encode());
    return this;
  }

  byte[] encode() throws IOException {
    out.flush();
    return bytes.toByteArray();
  }
}
