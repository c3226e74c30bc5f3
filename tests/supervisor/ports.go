// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
)

var (
	portsMu   sync.Mutex
	portsUsed = map[int]bool{} // by clusters of this process
)

// FreePorts finds n free loopback ports below the range from which the kernel
// serves outgoing connections, so that a stopped daemon finds its port free
// again. Another process may still take one first.
func FreePorts(n int) ([]int, error) {
	low := 32768
	if data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if v, err := strconv.Atoi(strings.Fields(string(data))[0]); err == nil {
			low = v
		}
	}
	if low < 12000 {
		low = 65536
	}
	portsMu.Lock()
	defer portsMu.Unlock()
	var ports []int
	for try := 0; len(ports) < n; try++ {
		if try > 100*n {
			return nil, errors.New("no free ports")
		}
		port := 10000 + rand.IntN(low-10000)
		if portsUsed[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		portsUsed[port] = true
		ports = append(ports, port)
	}
	return ports, nil
}
