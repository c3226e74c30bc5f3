// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class DirectivesTest {
  @Test
  void readsWhatItKnows() throws IOException {
    byte[] grant =
        new Message()
            .put(1, 7)
            .put(2, "a_1")
            .put(3, 3)
            .put(5, "n:1")
            .put(5, "n:2")
            .encode();
    byte[] packed = {0x32, 2, 4, 2}; // gpus, packed as proto3 does
    byte[] whole = new byte[grant.length + packed.length];
    System.arraycopy(grant, 0, whole, 0, grant.length);
    System.arraycopy(packed, 0, whole, grant.length, packed.length);
    Message m =
        new Message()
            .put(1, 1234)
            .put(2, 1000)
            .put(3, 10000)
            .put(5, new Message().put(1, 9).put(2, "b_1").put(3, true).put(4, "its lease ran out"))
            .put(6, new Message().put(1, "c_1").put(2, "rho 1.43"))
            .put(99, "x");
    byte[] head = m.encode();
    byte[] all = new byte[head.length + 2 + whole.length];
    System.arraycopy(head, 0, all, 0, head.length);
    all[head.length] = 0x22;
    all[head.length + 1] = (byte) whole.length;
    System.arraycopy(whole, 0, all, head.length + 2, whole.length);

    Directives d = Directives.parse(all);
    assertEquals(1234, d.seq);
    assertEquals(1000, d.tickMs);
    assertEquals(
        new Directives.Grant(7, "a_1", false, List.of("n:1", "n:2"), List.of(4, 2)),
        d.grants.get("a_1"));
    assertEquals(List.of(new Directives.Reclaim(9, "b_1", true, "its lease ran out")), d.reclaims);
    assertEquals("rho 1.43", d.waits.get("c_1"));
  }

  @Test
  void refusesWhatIsNoMessage() {
    Random random = new Random(1);
    int refused = 0;
    for (int i = 0; i < 10_000; i++) {
      byte[] noise = new byte[random.nextInt(40)];
      random.nextBytes(noise);
      try {
        Directives.parse(noise);
      } catch (IOException e) {
        refused++; // nothing else may come out
      }
    }
    assertTrue(refused > 5_000, refused + " refused");
    assertThrows(IOException.class, () -> Directives.parse(HexFormat.of().parseHex("22ff")));
  }
}
