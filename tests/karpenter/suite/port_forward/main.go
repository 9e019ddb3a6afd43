// What the API server asks of a kubelet for kubectl port-forward, and nothing else: connections to ports of pods that
// use their node's network, so to ports of this machine. The first line of the output is the port that it serves. It
// ends when its standard input is closed, so that it doesn't outlive the program that started it.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

const (
	idleTimeout           = 4 * time.Hour
	streamCreationTimeout = 30 * time.Second
)

type forwarder struct{ address string }

// PortForward copies between the stream and the port, until either ends.
func (f forwarder) PortForward(_ context.Context, _ string, _ string, port int32, stream io.ReadWriteCloser) error {
	connection, err := net.Dial("tcp", net.JoinHostPort(f.address, fmt.Sprint(port)))
	if err != nil {
		return err
	}
	defer connection.Close()
	go func() {
		_, _ = io.Copy(connection, stream)
	}()
	_, err = io.Copy(stream, connection)
	return err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: port-forward ADDRESS")
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(os.Args[1], "0"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/portForward/", func(w http.ResponseWriter, request *http.Request) {
		portforward.ServePortForward(w, request, forwarder{os.Args[1]}, path.Base(request.URL.Path), "",
			&portforward.V4Options{}, idleTimeout, streamCreationTimeout, portforward.SupportedProtocols)
	})
	// The API server accepts any certificate of a kubelet unless its flags name an authority.
	server := httptest.NewUnstartedServer(mux)
	_ = server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	_, _ = io.Copy(io.Discard, os.Stdin)
}
