import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import software.amazon.event.ruler.JsonRuleCompiler;
import software.amazon.event.ruler.Machine;

/**
 * Matches events with patterns by the rule engine of EventBridge. Standard input is JSON: the patterns by name, and a
 * list of events. Standard output has for each event the names of the patterns that match it, and of each pattern
 * that EventBridge would refuse the reason.
 */
public final class Judge {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonNode problem = json.readTree(System.in);
        ObjectNode answer = json.createObjectNode();
        ObjectNode refused = answer.putObject("refused");
        Machine machine = Machine.builder().build();
        for (var pattern : problem.get("patterns").properties()) {
            String reason = JsonRuleCompiler.check(pattern.getValue().toString());
            if (reason == null) {
                machine.addRule(pattern.getKey(), pattern.getValue().toString());
            } else {
                refused.put(pattern.getKey(), reason);
            }
        }
        ArrayNode matches = answer.putArray("matches");
        for (JsonNode event : problem.get("events")) {
            ArrayNode names = matches.addArray();
            machine.rulesForJSONEvent(event.toString()).forEach(names::add);
        }
        System.out.println(answer);
    }
}
