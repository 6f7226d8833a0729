// Runs Azurite's blob service, in memory. Told "stop" it refuses connections
// until it is told "start"; each is answered by a line. It ends when standard
// input does: so it can't outlive the test that started it, however that ends.
//
// Azurite's own command would outlive it, and one that is ended and started
// again with its files has forgotten until when leases last. Telemetry is off
// unless something switches it on, and nothing here does.

const { createInterface } = require("readline");
const { BlobServerFactory } = require("azurite/dist/src/blob/BlobServerFactory");

function fail(error) {
  console.error(`Azurite: ${error.message}`);
  process.exit(1);
}

async function main() {
  const server = await new BlobServerFactory().createServer();
  await server.start();
  server.httpServer.on("error", fail);
  const { address, port } = server.httpServer.address();
  const told = {
    stop() {
      server.httpServer.close(() => console.log("stopped"));
      server.httpServer.closeAllConnections();
    },
    start() {
      server.httpServer.listen(port, address, () => console.log("started"));
    },
  };
  createInterface({ input: process.stdin })
    .on("line", (line) => told[line]())
    .on("close", () => process.exit(0));
  console.log(port);
}

main().catch(fail);
